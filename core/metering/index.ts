/** What the stage that meters needs: what is held for an exchange, what it costs, and what its history says. */
export { billFor, type Bill, billedSoFar, delivered, heldCalls, holdFor, outputOf } from './charge.ts'
export { costOf } from './cost.ts'
export { outputLimit, type Terms } from './estimate.ts'
export { weighDocuments } from './input.ts'
export { METER_OPTIONS } from './meter-options.ts'
export { notesAtEnd, notesAtStart } from './notes.ts'
export { RunningHold } from './running-hold.ts'
export { learn, termsOf } from './terms.ts'
