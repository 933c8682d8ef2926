/** Numbers for the names that repeat in many rows: models, endpoints, prices, key types, upstream accounts. */
import { type Database, insertAll, selectIn, type Sql, nextNo } from './database.ts'

/** Numbers for names that repeat in many rows, such as models. */
export interface NameNumbers {
  numberOf(name: string): number
  nameOf(number: number): string
}

/** The names in the records, with a copy in memory. */
export class Names implements NameNumbers {
  readonly #database: Database
  readonly #numbers = new Map<string, number>()
  readonly #names = new Map<number, string>()

  constructor(database: Database) {
    this.#database = database
  }

  numberOf(name: string): number {
    const number = this.#numbers.get(name)
    if (number === undefined) throw new RangeError(`the name ${name} has no number`)
    return number
  }

  nameOf(number: number): string {
    const name = this.#names.get(number)
    if (name === undefined) throw new RangeError(`the number ${number} has no name`)
    return name
  }

  /** Reads all names, after another process has added some. */
  async load(sql: Sql = this.#database): Promise<void> {
    for (const row of await sql.all('SELECT no, name FROM names')) this.#add(String(row['name']), Number(row['no']))
  }

  /**
   * Makes sure that names have numbers. Call `kept` when the transaction is committed, so that numbers of one that
   * failed are not used.
   */
  async ensure(sql: Sql, names: Iterable<string>): Promise<NewNames> {
    const missing = [...new Set(names)].filter(name => !this.#numbers.has(name))
    const added = new Map<string, number>()
    if (missing.length > 0) {
      for (const row of await selectIn(sql, 'SELECT no, name FROM names WHERE name', missing))
        added.set(String(row['name']), Number(row['no']))
      let no = (await nextNo(sql, 'names')) - 1
      const rows = missing.filter(name => !added.has(name)).map(name => [++no, name] as const)
      await insertAll(sql, 'INSERT INTO names (no, name)', rows)
      for (const [number, name] of rows) added.set(name, number)
    }
    return {
      numberOf: name => added.get(name) ?? this.numberOf(name),
      kept: () => {
        for (const [name, number] of added) this.#add(name, number)
      },
    }
  }

  /** Forgets all names: the database lacks some of them now. */
  forget(): void {
    this.#numbers.clear()
    this.#names.clear()
  }

  #add(name: string, number: number): void {
    this.#numbers.set(name, number)
    this.#names.set(number, name)
  }
}

/** Numbers of names within a transaction. */
export interface NewNames extends Pick<NameNumbers, 'numberOf'> {
  /** Keeps the new numbers. */
  kept(): void
}
