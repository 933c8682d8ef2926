/** A gateway.yaml that a test changes by path. Every change must change something, so that no test goes stale. */
import { readFileSync, writeFileSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import { isMap, isScalar, isSeq, parseDocument, Document } from 'yaml'

/** Where a setting is: names with dots between them, or a list if a name contains a dot. */
type Path = string | readonly (string | number)[]

type Settings = Readonly<Record<string, unknown>>

/** Changes a file, and returns it. */
export type Edit = (file: GatewayFile) => GatewayFile

export class GatewayFile {
  readonly #document: Document
  /** Number of changes so far. */
  changes = 0

  constructor(yaml: string) {
    this.#document = parsed(yaml).clone()
  }

  /** Sets a setting, which may be new. Undefined removes it. @throws Error if it has this value already */
  set(path: Path, value: unknown): this {
    const names = namesOf(path)
    if (isDeepStrictEqual(this.#valueAt(names), value))
      throw new Error(`${names.join('.')} is ${String(value)} already`)
    this.changes++
    if (value === undefined) this.#document.deleteIn(names)
    else this.#document.setIn(names, this.#document.createNode(value))
    return this
  }

  /** Sets a setting to the content of a file. */
  fromFile(path: Path, file: string): this {
    const node = this.#document.createNode(file)
    node.tag = '!file'
    this.changes++
    this.#document.setIn(namesOf(path), node)
    return this
  }

  /** Sets several settings of one section. */
  setAll(section: Path, settings: Settings): this {
    for (const [name, value] of Object.entries(settings)) this.set([...namesOf(section), name], value)
    return this
  }

  /** Replaces a setting by what a function makes of it. */
  change<T>(path: Path, make: (value: T) => T): this {
    return this.set(path, make(this.#valueAt(namesOf(path)) as T))
  }

  /** Sets the same settings of every upstream. */
  everyUpstream(settings: Settings): this {
    return this.#every('upstreams', settings)
  }

  /** Sets the same settings of every key type. */
  everyKeyType(settings: Settings): this {
    return this.#every('keyTypes', settings)
  }

  /** Sets settings of a model; `*` stands for all models of the key type. */
  model(keyType: string, id: string, settings: Settings): this {
    const models = ['keyTypes', keyType, 'models']
    if (id !== '*') return this.setAll([...models, this.#indexOf(models, item => item['id'] === id, id)], settings)
    for (const [index, item] of this.#listAt(models).entries())
      if ((item as Settings)['as'] === undefined) this.setAll([...models, index], settings)
    return this
  }

  /** Sets options of a stage. */
  stage(name: string, options: Settings): this {
    const stage = ['chain', this.#stageAt(name)]
    if (!isMap(this.#document.getIn(stage))) this.#document.setIn(stage, this.#document.createNode({ [name]: {} }))
    return this.setAll([...stage, name], options)
  }

  /** Adds stages in front of a stage, as they stand in the chain. */
  insertBefore(name: string, ...stages: readonly unknown[]): this {
    return this.#insert('chain', this.#stageAt(name), stages)
  }

  /** Removes a stage. */
  remove(name: string): this {
    this.changes++
    this.#document.deleteIn(['chain', this.#stageAt(name)])
    return this
  }

  /** Adds a stage at the end of the chain. */
  append(stage: unknown): this {
    return this.#insert('chain', this.#listAt(['chain']).length, [stage])
  }

  /** Adds a model to a key type, as its first one. */
  insertModel(keyType: string, model: Settings): this {
    return this.#insert(['keyTypes', keyType, 'models'], 0, [model])
  }

  toString(): string {
    return this.#document.toString({ lineWidth: 0 })
  }

  #every(section: string, settings: Settings): this {
    for (const name of Object.keys(this.#valueAt([section]) as Settings)) this.setAll([section, name], settings)
    return this
  }

  #insert(list: Path, index: number, items: readonly unknown[]): this {
    const node = this.#document.getIn(namesOf(list))
    if (!isSeq(node)) throw new Error(`${namesOf(list).join('.')} is no list`)
    this.changes++
    node.items.splice(index, 0, ...items.map(item => this.#document.createNode(item)))
    return this
  }

  #stageAt(name: string): number {
    return this.#indexOf(['chain'], item => item[name] !== undefined || Object.values(item).join('') === name, name)
  }

  #indexOf(list: readonly string[], found: (item: Settings) => boolean, what: string): number {
    const index = this.#listAt(list).findIndex(item => found(typeof item === 'string' ? { item } : (item as Settings)))
    if (index < 0) throw new Error(`there is no ${what} in ${list.join('.')}`)
    return index
  }

  #listAt(names: readonly string[]): readonly unknown[] {
    return this.#valueAt(names) as readonly unknown[]
  }

  #valueAt(names: readonly (string | number)[]): unknown {
    const node = this.#document.getIn(names, true)
    if (isScalar(node)) return node.tag === '!env' ? node : node.value
    return isMap(node) || isSeq(node) ? node.toJS(this.#document) : undefined
  }
}

/** The file that was parsed last. Most tests change the same one, and copying it is quicker than parsing it again. */
const last = { yaml: '', document: new Document() }

function parsed(yaml: string): Document {
  // The file is written again with its `!env` tags.
  if (yaml !== last.yaml) Object.assign(last, { yaml, document: parseDocument(yaml, { logLevel: 'silent' }) })
  return last.document
}

/** Returns the text after a change. @throws Error if it has not changed */
export function edited(yaml: string, edit: Edit): string {
  const file = new GatewayFile(yaml)
  edit(file)
  if (file.changes === 0) throw new Error('the edit changed nothing')
  return file.toString()
}

function namesOf(path: Path): readonly (string | number)[] {
  return typeof path === 'string' ? path.split('.') : path
}

/** Changes a file on disk. */
export function rewrite(path: string, edit: Edit): void {
  writeFileSync(path, edited(readFileSync(path, 'utf8'), edit))
}
