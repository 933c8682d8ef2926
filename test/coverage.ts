/** The coverage of the tests, which V8 counts in each process, also in those that tests start. */
import { createRequire } from 'node:module'

/** The folder with what each process has covered. */
export const COVERAGE = '.tap/coverage'

/** Minimum share of lines and of branches, in per cent, that all tests together must cover. */
const FLOOR = { lines: 97, branches: 91 } as const

interface Report {
  getCoverageMapFromAllCoverageFiles(): Promise<{
    getCoverageSummary(): { toJSON(): Record<keyof typeof FLOOR, { pct: number }> }
  }>
}

/** Prints the coverage, and returns the kinds of it that are below the floor. */
export async function belowFloor(): Promise<string[]> {
  const { Report } = createRequire(import.meta.url)('c8') as { Report: (options: object) => Report }
  const report = Report({
    tempDirectory: COVERAGE,
    include: ['core/**', 'plugins/**'],
    exclude: ['plugins/*/page/**', 'core/web/shared/**'],
    excludeAfterRemap: false,
    reporter: [],
    reportsDirectory: '.tap/report',
    resolve: '',
    all: false,
  })
  const total = (await report.getCoverageMapFromAllCoverageFiles()).getCoverageSummary().toJSON()
  console.log(`\n${total.lines.pct} % of lines and ${total.branches.pct} % of branches covered`)
  return (Object.keys(FLOOR) as (keyof typeof FLOOR)[])
    .filter(name => total[name].pct < FLOOR[name])
    .map(name => `coverage of ${name}: ${total[name].pct} % is less than ${FLOOR[name]} %`)
}
