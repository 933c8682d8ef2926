/** Reads and checks the JSON of a request body while it arrives. */
import { OWN_BEGINNINGS } from './translate/passthrough.ts'
import { isUtf8 } from 'node:buffer'
import { JsonError, type JsonFault, type JsonLimits, SingleNames } from '../lib/json/limits.ts'
import { JsonScanner } from '../lib/json/scanner.ts'
import { Body, CONVERSATION } from './body.ts'
import { OPEN_OBJECT } from '../lib/json/bytes.ts'
import { GatewayError, invalidBody } from '../errors.ts'

/** Most top-level members. */
const MEMBERS_MAX = 1000
/** Most values and names in a member that is not the conversation. Such a member is parsed in one go. */
const MEMBER_ENTRIES_MAX = 50_000
/** Values that are read before other work gets its turn. */
const VALUES_PER_SLICE = 2000

/** Most values and names of a top-level member. */
function entriesMax(name: string): number {
  return CONVERSATION.has(name) ? Infinity : MEMBER_ENTRIES_MAX
}

/** Reads one body. */
export class BodyReader {
  readonly #limits: JsonLimits
  readonly #scanner: JsonScanner

  constructor(limits: JsonLimits) {
    this.#limits = limits
    this.#scanner = new JsonScanner(limits, SINGLE_NAMES, entriesMax, OWN_BEGINNINGS)
  }

  /** The number of values so far. */
  get values(): number {
    return this.#scanner.values
  }

  /**
   * Reads on.
   * @param bytes all bytes so far
   * @returns false if it must be called again, after other work has run
   * @throws GatewayError invalid_body if the bytes cannot be the beginning of a valid body
   */
  push(bytes: Buffer): boolean {
    return this.#read(bytes, false, VALUES_PER_SLICE)
  }

  /**
   * The body, when all bytes have arrived.
   * @throws GatewayError invalid_body unless it is a JSON object in UTF-8 within the limits, with distinct top-level
   * names and finite numbers
   */
  body(bytes: Buffer): Body {
    this.#read(bytes, true, Infinity)
    if (!isUtf8(bytes)) throw invalidBody('The request body is not valid UTF-8.')
    if (bytes[this.#scanner.tape.start(0) ?? 0] !== OPEN_OBJECT)
      throw invalidBody('The request body must be a JSON object.')
    return new Body(bytes, this.#scanner)
  }

  #read(bytes: Buffer, final: boolean, most: number): boolean {
    let all: boolean
    try {
      all = this.#scanner.push(bytes, final, most)
    } catch (thrown) {
      throw thrown instanceof JsonError ? this.#refusal(thrown.fault) : thrown
    }
    if (this.#scanner.names.size > MEMBERS_MAX)
      throw invalidBody(`The request body has more than ${MEMBERS_MAX} members.`)
    return all
  }

  #refusal(fault: JsonFault): GatewayError {
    const { depth, values } = this.#limits
    switch (fault.kind) {
      case 'syntax':
        return invalidBody('The request body is not valid JSON.')
      case 'depth':
        return invalidBody(`The request body is nested more than ${depth} levels deep.`)
      case 'values':
        return invalidBody(`The request body has more than ${values} values.`)
      case 'range':
        return invalidBody(`The request body has a number out of range: ${fault.text}`)
      case 'member':
        return invalidBody(
          `"${fault.name.slice(0, 64)}" has more than ${MEMBER_ENTRIES_MAX} values and names.`,
          fault.name.slice(0, 64),
        )
      case 'twice': {
        const name = fault.name.slice(0, 64)
        return fault.outermost
          ? invalidBody(`The request body names "${name}" twice.`, name)
          : invalidBody(`The request body names "${name}" twice in one object.`)
      }
    }
  }
}

/**
 * Names of members that determine what a part of a request is, refers to, or costs. If an object had such a name twice,
 * some parsers would use the first value and others the last.
 */
const SINGLE_NAMES = new SingleNames([
  'type',
  'id',
  'file_id',
  'model',
  'role',
  'content',
  'source',
  'container',
  'container_id',
  'environment',
  'vector_store_ids',
  'file_ids',
  'skill_id',
  'skills',
  'tools',
  'file',
  'audio',
  'audio_url',
  'image_url',
  'input_audio',
  'input_image_mask',
  'memory_limit',
  'max_uses',
  'cache_control',
  'ttl',
])
