/** What the meter knows beyond single exchanges. One instance per process, in memory only. */
import { Learned } from './learned.ts'
import { Prefixes } from './prefixes.ts'

/** What replies have revealed about their models, and counters since the start of the process. */
export class MeterState {
  /** What replies have revealed about their models. */
  readonly learned = new Learned()
  /** What upstreams have reported about the input of conversations. */
  readonly prefixes = new Prefixes()
  /** Requests whose reported usage was implausible. */
  quarantined = 0
  /** How often charges above the estimate were suspended for a model after several implausible reports. */
  suspensions = 0
  /** Requests that used something without a price. */
  unpriced = 0
  /** Requests that were charged less than they cost the operator. */
  belowCost = 0
}
