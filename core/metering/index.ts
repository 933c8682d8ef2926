/** The metering functions for the metering stage: holds, charges, and notes for the history. */
export { billFor, type Bill, billedSoFar, delivered, heldCalls, holdFor, outputOf } from './charge.ts'
export { costOf } from './cost.ts'
export { outputLimit, type Terms } from './estimate.ts'
export { weighDocuments } from './input.ts'
export { METER_OPTIONS } from './meter-options.ts'
export { notesAtEnd, notesAtStart } from './notes.ts'
export { RunningHold } from './running-hold.ts'
export { learn, termsOf } from './terms.ts'
