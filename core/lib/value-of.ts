/** Returns the value of a promise that has settled. @throws why it was rejected */
export function valueOf<T>(result: PromiseSettledResult<T>): T {
  if (result.status === 'rejected') throw result.reason
  return result.value
}
