/** Why a store cannot be used with these records, in words for the operator. */

/** The store cannot be used at the moment. */
export const CLOSED_STORE = 'the store is away, or is being compared with the records'

/** The store is empty although the records are not. */
export const EMPTY_STORE =
  'the store is empty, but the records have keys: if these are the right store (REDIS_URL, store.prefix) and the right records, run `npx tollgate rebuild`, which fills the store from the records'

/** The records are used with another store since. */
export const OTHER_STORE =
  'these records are used with another store now: use that one (REDIS_URL, store.prefix). To use this one instead, empty it and run `npx tollgate rebuild`; what ended here and is not recorded is lost then'

/** A rebuild is not needed. */
export const NOT_EMPTY = 'the store is not empty, and these records are used with it; a rebuild needs an empty store'

/** The file of the records that the store was used with is missing. */
export function lostFile(file: string): string {
  return `${file} is missing, but the store has been used with records: put the file back, or restore it from a backup. To begin anew, empty the store`
}

/** The file of the records is missing. Whether there ever was one is not known. */
export function noFileYet(file: string): string {
  return `${file} is missing: check store.data, or start the gateway once, which makes it`
}

/** The store has another layout. */
export function otherLayout(found: string, known: string): string {
  return `the store has ${found}; this version of Tollgate knows ${known}`
}

/** The store is used with other records. @param description of these records */
export function otherRecords(description: string): string {
  return `the store belongs to other records than ${description}: set store.records (or store.data, if it is SQLite) to those that were used with it`
}
