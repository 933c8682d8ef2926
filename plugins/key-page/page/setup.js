/** Set-up of clients for this very key: with its address, its models and the key itself. */
import { banner, button, field, fill, h, select } from './dom.js'
import { copyButton } from './give.js'
import { testCard } from './try.js'

/**
 * `small` is the cheapest model, for work in the background; `context` is the context window of the model in tokens.
 * @typedef {{ base: string, key: string, model: string, small: string, context: number | null, title: string, models: string[], endpoint: string }} Values
 */
/** @typedef {{ title: string, text: string, note?: string }} Block */
/** @typedef {{ id: string, name: string, needs: string[], blocks: (values: Values) => Block[], intro?: string }} Client */

const CHAT = 'POST /v1/chat/completions'
const RESPONSES = 'POST /v1/responses'
const MESSAGES = 'POST /v1/messages'

/** The variables of Claude Code. @param {Values} values @returns {[string, string][]} */
function claudeSettings({ base, key, model, small, context }) {
  return [
    ['ANTHROPIC_BASE_URL', base],
    ['ANTHROPIC_AUTH_TOKEN', key],
    ['ANTHROPIC_MODEL', model],
    ['ANTHROPIC_DEFAULT_HAIKU_MODEL', small],
    ...(context ? [/** @type {[string, string]} */ (['CLAUDE_CODE_AUTO_COMPACT_WINDOW', String(context)])] : []),
  ]
}

/** @type {Client[]} */
const CLIENTS = [
  {
    id: 'claude-code',
    name: 'Claude Code',
    needs: [MESSAGES],
    blocks: values => {
      const env = claudeSettings(values)
      return [
        {
          title: 'macOS, Linux: terminal',
          text: [...env.map(([name, value]) => `export ${name}="${value}"`), 'claude'].join('\n'),
        },
        {
          title: 'Windows: PowerShell',
          text: [...env.map(([name, value]) => `$env:${name} = "${value}"`), 'claude'].join('\n'),
        },
        { title: '~/.claude/settings.json: for good', text: JSON.stringify({ env: Object.fromEntries(env) }, null, 2) },
      ]
    },
  },
  {
    id: 'codex',
    name: 'Codex',
    needs: [RESPONSES],
    blocks: ({ base, key, model, context }) => [
      {
        title: '~/.codex/config.toml',
        text: `model = "${model}"${context ? `\nmodel_context_window = ${context}` : ''}\nmodel_provider = "gateway"\n\n[model_providers.gateway]\nname = "Gateway"\nbase_url = "${base}/v1"\nwire_api = "responses"\nenv_key = "GATEWAY_API_KEY"`,
      },
      { title: 'macOS, Linux: terminal', text: `export GATEWAY_API_KEY="${key}"\ncodex` },
      { title: 'Windows: PowerShell', text: `$env:GATEWAY_API_KEY = "${key}"\ncodex` },
    ],
  },
  {
    id: 'openai',
    name: 'OpenAI SDK',
    needs: [CHAT, RESPONSES],
    blocks: ({ base, key, model }) => [
      {
        title: 'Python',
        text: `from openai import OpenAI\n\nclient = OpenAI(base_url="${base}/v1", api_key="${key}")\nreply = client.chat.completions.create(\n    model="${model}",\n    messages=[{"role": "user", "content": "Hello"}],\n)\nprint(reply.choices[0].message.content)`,
      },
      {
        title: 'JavaScript',
        text: `import OpenAI from 'openai'\n\nconst client = new OpenAI({ baseURL: '${base}/v1', apiKey: '${key}' })\nconst reply = await client.chat.completions.create({\n  model: '${model}',\n  messages: [{ role: 'user', content: 'Hello' }],\n})\nconsole.log(reply.choices[0].message.content)`,
      },
    ],
  },
  {
    id: 'anthropic',
    name: 'Anthropic SDK',
    needs: [MESSAGES],
    blocks: ({ base, key, model }) => [
      {
        title: 'Python',
        text: `from anthropic import Anthropic\n\nclient = Anthropic(base_url="${base}", api_key="${key}")\nreply = client.messages.create(\n    model="${model}",\n    max_tokens=1024,\n    messages=[{"role": "user", "content": "Hello"}],\n)\nprint(reply.content[0].text)`,
      },
      {
        title: 'JavaScript',
        text: `import Anthropic from '@anthropic-ai/sdk'\n\nconst client = new Anthropic({ baseURL: '${base}', apiKey: '${key}' })\nconst reply = await client.messages.create({\n  model: '${model}',\n  max_tokens: 1024,\n  messages: [{ role: 'user', content: 'Hello' }],\n})\nconsole.log(reply.content[0].text)`,
      },
    ],
  },
  {
    id: 'cursor',
    name: 'Cursor',
    needs: [CHAT],
    intro:
      'In Cursor, open Settings, then Models. Turn on “Override OpenAI Base URL”, paste both values, and add the model by its name. Cursor calls from its own servers, so the address must be reachable from the internet.',
    blocks: ({ base, key, model }) => [
      { title: 'Override OpenAI Base URL', text: `${base}/v1` },
      { title: 'OpenAI API Key', text: key },
      { title: 'Model', text: model },
    ],
  },
  {
    id: 'curl',
    name: 'curl',
    needs: [CHAT, RESPONSES, MESSAGES],
    blocks: values => [
      { title: 'A request', text: curl(values) },
      {
        title: 'What is left',
        text: `curl ${values.base}/api/v1/keys/lookup/balance -H 'authorization: Bearer ${values.key}'`,
      },
    ],
  },
]

const CURL_PATHS = {
  [CHAT]: model => ['/v1/chat/completions', { model, messages: [{ role: 'user', content: 'Hello' }] }],
  [RESPONSES]: model => ['/v1/responses', { model, input: 'Hello' }],
  [MESSAGES]: model => ['/v1/messages', { model, max_tokens: 1024, messages: [{ role: 'user', content: 'Hello' }] }],
}

function curl({ base, key, model, endpoint }) {
  const [path, body] = CURL_PATHS[endpoint](model)
  return `curl ${base}${path} \\\n  -H 'authorization: Bearer ${key}' \\\n  -H 'content-type: application/json' \\\n  -d '${JSON.stringify(body)}'`
}

/**
 * @param {Element} panel @param {any} info
 * @param {{ base: string, key: string, title: string }} own @param {() => void} onSpent called when a test was charged
 */
export function setupPanel(panel, info, own, onSpent) {
  const model = select(
    info.models.map(id => [id, id]),
    { value: info.default_model },
  )
  const hidden = h('input', { type: 'checkbox', checked: true })
  const place = h('div.stack')
  const offered = client => client.needs.find(endpoint => info.endpoints.includes(endpoint))
  /** @type {Client[]} */
  const clients = [...CLIENTS, { id: 'cc-switch', name: 'cc-switch', needs: [MESSAGES, RESPONSES], blocks: () => [] }]
  let chosen = clients.find(offered) ?? clients[0]
  const buttons = clients.map(client => {
    const element = h('button', { type: 'button' }, client.name)
    element.addEventListener('click', () => {
      chosen = client
      show()
    })
    return element
  })
  const show = () => {
    buttons.forEach((each, at) => each.setAttribute('aria-current', String(clients[at] === chosen)))
    const endpoint = offered(chosen)
    if (!endpoint) return fill(place, notOffered(chosen, info.key_type))
    const { context = null } = info.prices.find(each => each.model === model.value) ?? {}
    const values = { ...own, model: model.value, small: info.background_model, context, models: info.models, endpoint }
    const masked = { ...values, key: hidden.checked ? info.label : own.key }
    if (chosen.id === 'cc-switch') return fill(place, importLinks(info, values))
    const real = chosen.blocks(values)
    fill(
      place,
      chosen.intro && h('p', chosen.intro),
      chosen.blocks(masked).map((block, at) => code(block, real[at]?.text ?? '')),
    )
  }
  model.addEventListener('change', show)
  hidden.addEventListener('change', show)
  fill(
    panel,
    h(
      'div.stack',
      h(
        'section.card.stack',
        h(
          'div.fields',
          field('Model', model),
          h('label.check', hidden, 'Hide the key on the screen; copying gives all of it'),
        ),
        h('div.clients', h('nav', { 'aria-label': 'Clients' }, buttons), place),
      ),
      testCard(info, onSpent),
    ),
  )
  show()
}

/** Says that a client cannot be used. @param {Client} client @param {string} type of the key */
function notOffered({ name, needs }, type) {
  const formats = needs.map(each => each.replace('POST ', '')).join(' or ')
  const why = `${name} calls ${formats}, which ${type} keys do not serve.`
  return banner('warn', `This key cannot be used with ${name}.`, why)
}

/** @param {Block} block @param {string} real what is copied */
function code({ title, text }, real) {
  return h(
    'div.code',
    h(
      'header',
      h('span', title),
      copyButton(() => real, 'Copy', { 'aria-label': `Copy: ${title}` }),
    ),
    h('pre', { tabindex: '0', 'aria-label': title }, text),
  )
}

/** The script by which cc-switch shows the balance: it is shown to the customer before it is imported. */
const USAGE_SCRIPT = `({
  request: {
    url: "{{baseUrl}}".replace(/\\/v1\\/?$/, "") + "/v1/usage",
    method: "GET",
    headers: { Authorization: "Bearer {{apiKey}}" }
  },
  extractor: function (reply) {
    return {
      isValid: reply.status === "active",
      planName: reply.planName,
      remaining: reply.quota.remaining,
      used: reply.quota.used,
      total: reply.quota.limit,
      unit: reply.unit
    };
  }
})`

/** Returns the link by which cc-switch imports this key for an app. */
export function importLink(app, { base, key, model, title }) {
  const query = new URLSearchParams({
    resource: 'provider',
    app,
    name: title,
    homepage: base,
    endpoint: app === 'claude' ? base : `${base}/v1`,
    apiKey: key,
    model,
    enabled: 'true',
    usageEnabled: 'true',
    usageScript: btoa(USAGE_SCRIPT),
    usageAutoInterval: '30',
  })
  return `ccswitch://v1/import?${query}`
}

function importLinks(info, values) {
  const apps = [
    ['claude', 'Claude Code', MESSAGES],
    ['codex', 'Codex', RESPONSES],
  ].filter(([, , endpoint]) => info.endpoints.includes(endpoint))
  return [
    h(
      'p',
      'cc-switch is an app that switches the accounts of agents. The link contains your key: open it only on a computer of your own.',
    ),
    h(
      'div.row',
      apps.map(([app, name]) => [
        button(`Open cc-switch for ${name}`, () => void (location.href = importLink(app, values)), {
          class: 'button primary',
        }),
        copyButton(() => importLink(app, values), `Copy the link for ${name}`),
      ]),
    ),
  ]
}
