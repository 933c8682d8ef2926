/**
 * The statement of an account: grants, deductions, changes of its plan, refunds and charges, from credits or from the plan, in
 * the order in which they were booked. A booking gets its number, its time and the balance after it in the transaction that records it, and never changes. An exchange that
 * ends again books the difference.
 */
import { bigintOf, type Row, selectIn, type Sql } from './database.ts'

/** What a booking is known by. */
export interface Booking {
  /** Counts the bookings of the account from 1 on. */
  readonly number: number
  /** When it was booked, in milliseconds since the epoch. */
  readonly at: number
}

/** What is booked of an entry: its booking if it changes a purse, and what was granted less what was charged after it. */
export interface Booked {
  readonly booking: Booking | undefined
  readonly balance: bigint
  /** Whether entries with higher ordinals were booked before. */
  readonly isLate: boolean
}

/** An account whose exchanges are being recorded. */
export interface Spending {
  readonly account: string
  /** Of the key that it was made with; empty if there was none. */
  readonly type: string
  readonly name: string
  readonly label: string
  /** Its plan as JSON. Undefined for none. */
  readonly plan: string | undefined
  /** What remains of its grants, before and after the exchanges, in nano-credits. What is held counts as not spent. */
  readonly before: bigint
  readonly after: bigint
}

interface Book {
  readonly owner: Omit<Spending, 'before' | 'after'>
  readonly isShared: boolean
  readonly settledBefore: bigint
  readonly granted: bigint
  /** The number of grants. Each of them is a booking. */
  readonly grants: number
  settled: bigint
  /** Bookings of entries. */
  entries: number
  /** The highest ordinal that was booked. */
  ordinal: number
}

/** The books of some accounts within a transaction. Accounts are numbers of rows. */
export class Books {
  readonly #books = new Map<number, Book>()
  readonly #added = new Map<number, number>()
  readonly #now: number

  private constructor(rows: readonly Row[], now: number) {
    this.#now = now
    for (const row of rows)
      this.#books.set(Number(row['no']), {
        owner: {
          account: String(row['id']),
          type: String(row['type']),
          name: String(row['name']),
          label: String(row['label']),
          plan: (row['plan'] as string | null) ?? undefined,
        },
        isShared: Number(row['shared']) === 1,
        settledBefore: bigintOf(row, 'settled'),
        granted: bigintOf(row, 'granted'),
        grants: Number(row['grants']),
        settled: bigintOf(row, 'settled'),
        entries: Number(row['booked'] ?? 0),
        ordinal: Number(row['ordinal'] ?? 0),
      })
  }

  /** Opens the books of accounts. @param now milliseconds since the epoch */
  static async open(sql: Sql, accounts: Iterable<number>, now: number): Promise<Books> {
    const rows = await selectIn(
      sql,
      `SELECT a.no, a.id, a.shared, COALESCE(k.type, '') AS type, COALESCE(k.name, a.name) AS name,
       COALESCE(k.label, '') AS label, a.plan, a.grants, a.granted, t.settled, t.booked, t.ordinal FROM accounts a
       LEFT JOIN keys k ON k.no = a.no LEFT JOIN totals t ON t.account = a.no WHERE a.no`,
      [...new Set(accounts)],
    )
    return new Books(rows, now)
  }

  /**
   * Books an entry.
   * @param added what it adds to the charges of the account, and to what its plan has paid
   */
  book(account: number, ordinal: number, added: { readonly credits: bigint; readonly plan: bigint }): Booked {
    const book = this.#books.get(account)
    if (!book) throw new RangeError(`the account ${account} has no book`)
    const isLate = ordinal <= book.ordinal
    book.ordinal = Math.max(book.ordinal, ordinal)
    book.settled += added.credits
    const balance = book.granted - book.settled
    if (added.credits === 0n && added.plan === 0n) return { booking: undefined, balance, isLate }
    book.entries++
    this.#added.set(account, (this.#added.get(account) ?? 0) + 1)
    return { booking: { number: book.grants + book.entries, at: this.#now }, balance, isLate }
  }

  /** Returns what the accounts have spent by the booked entries. */
  get spending(): Spending[] {
    return [...this.#books.values()].map(({ owner, granted, settledBefore, settled }) => ({
      ...owner,
      before: granted - settledBefore,
      after: granted - settled,
    }))
  }

  /** Whether several keys may spend from an account. */
  isShared(account: number): boolean {
    return this.#books.get(account)?.isShared === true
  }

  /** Returns how many bookings an account got. */
  added(account: number): number {
    return this.#added.get(account) ?? 0
  }
}
