/** Reads what the processes of tests print: assertions, failures with their tests, and the time of each file. */

/** The output of one process. */
interface Output {
  /** @returns `file` if the tests of another file follow */
  read(line: string): 'file' | undefined
  /** @param exit its exit status, or the signal that ended it */
  end(exit: number | string): void
}

/** Reads the outputs of several processes. */
export class TapReader {
  /** All lines, those of one process together. */
  readonly lines: string[] = []
  /** What failed, each with its file and its tests. */
  readonly failed: string[] = []
  /** The failures with what tap says about each. */
  readonly diagnostics: string[] = []
  /** The files that have asserted something. */
  readonly ran = new Set<string>()
  passed = 0
  skipped = 0
  readonly #print: (line: string) => void

  /** @param print prints a line for each file */
  constructor(print: (line: string) => void) {
    this.#print = print
  }

  /** Begins to read the output of a process. */
  begin(): Output {
    const [lines, diagnostics]: [string[], string[]] = [[], []]
    /** The file whose tests follow, its seconds so far, and the tests that are open. */
    let [file, seconds, failures, said, isWell] = ['', 0, 0, false, true]
    let isComplete = false
    const within: string[] = []
    const closeFile = (): void => {
      if (file === '' || !this.ran.has(file)) return
      this.#print(`${seconds.toFixed(1).padStart(6)} s  ${file}${failures > 0 ? ' (failed)' : ''}`)
    }
    const readPoint = (line: string): void => {
      const [, indent = '', not, text = ''] = /^( *)(not )?ok \d+(?: - )?(.*)$/.exec(line) ?? []
      const [, ms] = / # time=([\d.]+)ms/.exec(text) ?? []
      if (ms !== undefined && indent === '' && !text.startsWith('next ')) {
        seconds += Number(ms) / 1000
      }
      // A line with a time sums up what stands above it. A test that expired has nothing above it.
      if (ms !== undefined && !(not && text.startsWith('timeout!'))) return
      this.ran.add(file)
      if (!not && /# skip/i.test(text)) this.skipped++
      else if (not) {
        failures++
        isWell = false
        this.failed.push([file, ...within.slice(0, indent.length / 4), text].join(' > '))
      } else this.passed++
    }
    return {
      read: line => {
        lines.push(line)
        const [, of] = /^ *# file: (.+)$/.exec(line) ?? []
        isComplete ||= line.trim() === '# all files have run'
        const [, depth = '', subtest] = /^( *)# Subtest: (.*)$/.exec(line) ?? []
        if (of !== undefined) {
          closeFile()
          ;[file, seconds, failures] = [of, 0, 0]
        } else if (subtest !== undefined) within.splice(depth.length / 4, Infinity, subtest)
        else if (/^ *(?:not )?ok\b/.test(line) && !line.endsWith('{')) readPoint(line)
        if (/^\s*not ok\b/.test(line) && !/# time=/.test(line)) said = true
        else if (/^\s*(?:ok\b|# Subtest|\d+\.\.\d+)/.test(line)) said = false
        if (said) diagnostics.push(line)
        return of === undefined ? undefined : 'file'
      },
      end: exit => {
        closeFile()
        this.lines.push(...lines)
        this.diagnostics.push(...diagnostics)
        if (!isComplete || (exit !== 0 && isWell))
          this.failed.push(`${file === '' ? 'no file' : file}: its process ended with ${exit}`)
      },
    }
  }
}
