/** What the tests of plugins import as `tollgate/testing`: a stage is driven without a socket, a store or a provider. */
export { bodyOf } from './body.ts'
export { type Drive, drive, type Driven } from './drive.ts'
export { replyEvents, type RecordedStream, STREAMS } from './streams.ts'
