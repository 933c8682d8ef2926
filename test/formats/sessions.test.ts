import { readFileSync } from 'node:fs'
import t from 'tap'
import { parse } from 'yaml'
import { FORMATS, type FormatName } from '../../core/formats/index.ts'
import { withoutOwn } from '../../core/formats/own-values.ts'
import type { ModelTraits } from '../../core/formats/translate/neutral.ts'
import { bodyOf } from 'tollgate/testing'
import { become } from './become.ts'
import { refusalOf } from './provider-rules.ts'

/** A request of an agent, and what must be true of what its provider gets. Texts are regular expressions. */
interface Row {
  readonly about: string
  readonly from: FormatName
  /** All other formats by default. */
  readonly to?: readonly FormatName[]
  readonly body: object
  readonly traits?: Partial<ModelTraits>
  /** What the provider gets, by format or for all of them. */
  readonly sends?: string | Partial<Record<FormatName, string>>
  readonly lacks?: string
  /** Names in `x-tollgate-dropped`. */
  readonly names?: readonly string[]
  /** Nothing else is named. */
  readonly only?: boolean
  readonly refuses?: string
  readonly code?: string
}

/** A request in the format of its provider, with values of the gateway's own, and what the provider gets. */
interface Native {
  readonly about: string
  readonly format: FormatName
  readonly body: object
  readonly sent: object
  readonly names?: string
}

const { values, native, ...kinds } = parse(readFileSync(new URL('sessions.yaml', import.meta.url), 'utf8')) as {
  values: string[]
  native: Native[]
} & Record<string, Row[]>

for (const [kind, rows] of Object.entries(kinds)) {
  t.test(kind, t => {
    for (const row of rows) {
      const { about, from, to: others, body, traits, sends, lacks, names = [], only, refuses, code, ...unknown } = row
      t.strictSame(unknown, {}, about)
      for (const to of others ?? (Object.keys(FORMATS) as FormatName[]).filter(name => name !== from)) {
        const { sent, dropped = '', refused, ...fate } = become(from, to, JSON.stringify(body), {}, traits)
        const title = `${about} (${from} to ${to})`
        if (refuses !== undefined) {
          t.match(refused, new RegExp(refuses), title)
          if (code !== undefined) t.equal(fate.code, code, title)
          continue
        }
        t.equal(refused, undefined, title)
        const sign = typeof sends === 'string' ? sends : sends?.[to]
        if (sign !== undefined) t.match(sent, new RegExp(sign), title)
        if (lacks !== undefined) t.notMatch(sent, new RegExp(lacks), title)
        const found = dropped === '' ? [] : dropped.split(', ')
        if (only === true) t.strictSame(found.toSorted(), names.toSorted(), title)
        else for (const name of names) t.ok(found.includes(name), `${title}: ${name} is named in ${dropped}`)
        t.equal(refusalOf(to, JSON.parse(sent ?? '{}')), undefined, `${title}: the provider accepts it`)
      }
    }
    t.end()
  })
}

t.test('values of the gateway’s own never reach a provider of the client’s format', async t => {
  for (const { about, format, body, sent, names } of native) {
    const cleaned = await withoutOwn(bodyOf(Buffer.from(JSON.stringify(body))), format)
    t.strictSame(JSON.parse(String(Buffer.concat(cleaned?.parts ?? []))), sent, about)
    t.equal(String(cleaned?.dropped), names ?? '', about)
  }
  t.end()
})

t.test('all else of such a request keeps its bytes', async t => {
  const before = `{ "max_tokens":1.0, "messages" : [{"role":"user", "content":"\\u0061 tollgate.x"},{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"${values[0]}"},{"type":"tool_use","id":"t","name":"f","input":{"big":12345678901234567890}}]}] }`
  const cleaned = await withoutOwn(bodyOf(Buffer.from(before)), 'messages')
  t.equal(
    String(Buffer.concat(cleaned?.parts ?? [])),
    `{ "max_tokens":1.0, "messages" : [{"role":"user", "content":"\\u0061 tollgate.x"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"big":12345678901234567890}}]}] }`,
  )
  t.equal(await withoutOwn(bodyOf(Buffer.from('{"messages":[{"role":"user","content":"hi"}]}')), 'messages'), undefined)
  t.end()
})
