/** The JSON Schema and the reference of gateway.yaml, both made from the schemas that check the file. */
import { SCHEMA } from './schema.ts'
import { expectedOf, type Shape } from './shape.ts'

/** A plugin as the schema describes it. */
export interface DescribedPlugin {
  readonly name: string
  readonly summary: string
  /** JSON Schema. */
  readonly options: unknown
}

interface Node extends Shape {
  readonly description?: string
  readonly required?: readonly string[]
  readonly enum?: readonly unknown[]
  readonly properties?: Readonly<Record<string, Node>>
  readonly additionalProperties?: boolean | Node
  readonly items?: Node
  readonly [keyword: string]: unknown
}

/** Schema of a value with the tag `!env` or `!file`. An editor sees only the text after the tag. */
const FROM_ELSEWHERE = { type: 'string', pattern: '^[A-Za-z_./~][^\\n]*$' } as const

/**
 * Types whose values may all come from the environment. Strings may too if they have a rule; a plain string accepts the
 * tag's text anyway.
 */
const SCALARS: ReadonlySet<string> = new Set(['integer', 'number', 'boolean'])

/** Keywords of Tollgate's own, and formats that have another meaning elsewhere. */
const OWN_KEYWORDS: ReadonlySet<string> = new Set(['expected', 'format'])

/** Returns the JSON Schema of gateway.yaml for editors and other tools, with the options of the plugins. */
export function publishedSchema(plugins: Iterable<DescribedPlugin>): object {
  const stages = [...plugins].map(({ name, summary, options }) => ({
    type: 'object',
    description: summary,
    additionalProperties: false,
    required: [name],
    properties: { [name]: options },
  }))
  const names = stages.flatMap(({ required }) => required)
  const chain = { ...SCHEMA.properties.chain, items: { anyOf: [{ type: 'string', enum: names }, ...stages] } }
  return {
    $schema: 'http://json-schema.org/draft-07/schema#',
    title: 'gateway.yaml',
    ...(published({ ...SCHEMA, properties: { ...SCHEMA.properties, chain } }) as object),
  }
}

/** Returns a schema without Tollgate's own keywords. Each scalar may also come from the environment. */
function published(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(published)
  if (typeof schema !== 'object' || schema === null) return schema
  const { description, default: standard, properties, ...others } = schema as Node
  const notes = {
    ...(description !== undefined && { description }),
    ...(standard !== undefined && { default: standard }),
  }
  const kept = Object.entries(others).filter(([keyword]) => !OWN_KEYWORDS.has(keyword))
  const rules = {
    ...mapValues(Object.fromEntries(kept), published),
    // The members of `properties` are named by settings, not by keywords.
    ...(properties && { properties: mapValues(properties, published) }),
  }
  const { type, pattern, enum: words } = others
  const isScalar = pattern !== undefined || words !== undefined || SCALARS.has(type ?? '')
  return type !== undefined && isScalar ? { ...notes, anyOf: [rules, FROM_ELSEWHERE] } : { ...notes, ...rules }
}

function mapValues(record: Readonly<Record<string, unknown>>, change: (value: unknown) => unknown): object {
  return Object.fromEntries(Object.entries(record).map(([name, value]) => [name, change(value)]))
}

/** Returns the reference of gateway.yaml as Markdown. */
export function reference(plugins: Iterable<DescribedPlugin>): string {
  const root = SCHEMA as unknown as Node
  const { upstreams, prices, keyTypes, chain: _chain, ...sections } = root.properties ?? {}
  const plain = Object.entries(sections).filter(([, { properties }]) => properties === undefined)
  const grouped = Object.entries(sections).filter(([, { properties }]) => properties !== undefined)
  return (
    [
      INTRODUCTION,
      `## Top level\n\n${table(Object.fromEntries(plain), '', [])}`,
      ...grouped.map(
        ([name, section]) => `## ${name}\n\n${section.description}\n\n${table(section.properties, `${name}.`)}`,
      ),
      entries('upstreams', 'Each entry is a provider. Its name is yours to choose.', upstreams),
      entries('prices', 'Each entry is a price. Rates are credits per million tokens.', prices),
      entries('keyTypes', 'Each entry is a key type, the product that a key belongs to.', keyTypes),
      `## chain\n\nThe stages of the plugin pipeline. A stage is the name of a plugin, or \`name: { options }\`. [plugins.md](plugins.md) describes them all.`,
      ...[...plugins]
        .filter(({ options }) => Object.keys((options as Node).properties ?? {}).length > 0)
        .map(({ name, summary, options }) => `### ${name}\n\n${summary}\n\n${table((options as Node).properties)}`),
      '',
    ]
      .join('\n\n')
      .trimEnd() + '\n'
  )
}

const INTRODUCTION = `# Configuration

Every option of \`gateway.yaml\`, with its default. \`npm run docs\` writes this page from the schema that checks the file.

- \`npx tollgate check\` prints all problems of a file, with line and remedy.
- \`!env NAME fallback\` as a value reads an environment variable. An empty variable counts as unset.
- \`!file PATH\` as a value reads a file, without its last line break. A changed file is read again within two seconds. A path is relative
  to the folder of gateway.yaml.
- Durations have a unit: \`ms\`, \`s\`, \`m\`, \`h\` or \`d\`. A time limit on a request never ends it early. It may end it late by up to an eighth.
- Sizes have a unit: \`B\`, \`KiB\`, \`MiB\` or \`GiB\`.
- Amounts and rates are plain decimals with up to nine decimal places.
- A running gateway applies a changed file at once, except \`listen\`, \`workers\`, \`store\` and \`ledger\`, which need a restart.
- \`npx tollgate schema\` prints a JSON Schema for editors. For \`!env\` and \`!file\`, set \`yaml.customTags: ["!env scalar", "!file scalar"]\` in your editor. An editor
  accepts a little more than Tollgate does, so \`check\` decides.`

/** Returns the tables of a section whose members have names of the operator's choice. */
function entries(name: string, introduction: string, section: Node = {}): string {
  const entry = section.additionalProperties as Node
  return `## ${name}\n\n${introduction}\n\n${table(entry.properties, '', entry.required)}`
}

/** Returns one row for each setting; nested settings follow their parent. */
function table(properties: Node['properties'] = {}, prefix = '', required: readonly string[] = []): string {
  return [
    '| option | default | values | description |',
    '|---|---|---|---|',
    ...rows(properties, prefix, required),
  ].join('\n')
}

function rows(properties: Readonly<Record<string, Node>>, prefix: string, required: readonly string[] = []): string[] {
  return Object.entries(properties).flatMap(([name, node]) => {
    const nested = node.items?.properties ? node.items : node
    const path = `${prefix}${name}${nested === node ? '' : '[]'}`
    const own = [`\`${path}\``, standardOf(node, required.includes(name)), valuesOf(node), node.description ?? '']
    const inner = rows(nested.properties ?? {}, `${path}.`, nested.required)
    // A policy has the same few words for every member; docs/billable-members.md has the table.
    if (node.properties && Object.values(node.properties).every(({ enum: words }) => words)) return [row(own)]
    return node.properties ? inner : [row(own), ...inner]
  })
}

function row(cells: readonly string[]): string {
  return `| ${cells.map(cell => cell.replaceAll('|', '\\|')).join(' | ')} |`
}

function standardOf(node: Node, isRequired: boolean): string {
  if (node.default !== undefined)
    return `\`${typeof node.default === 'string' ? node.default : JSON.stringify(node.default)}\``
  return isRequired ? 'required' : ''
}

/** Returns which values a setting accepts, without the article and without examples. */
function valuesOf(node: Node): string {
  if (node.enum) return node.enum.map(value => `\`${String(value)}\``).join(', ')
  const words = (expectedOf(node) ?? '').replace(/^an? /, '')
  return words.replace(/,? such as .*?(?=, from|, or|$)/, '').replace(/^(model id|plain decimal)[:,].*/, '$1')
}
