/** The tests of the records once more, on PostgreSQL. */
import { globSync } from 'node:fs'
import { pathToFileURL } from 'node:url'

process.env['TEST_RECORDS'] = 'postgres'
for (const file of globSync('test/records/*.test.ts').sort()) await import(pathToFileURL(file).href)
