/** The OpenAPI of the operations. */
import { ENTRY } from './report-schemas.ts'
import { ERROR, listOf, SESSION } from './schemas.ts'
import type { Operation } from './operation.ts'

interface Node {
  readonly title?: string
  readonly [member: string]: unknown
}

/** Returns a schema as OpenAPI has it. */
type Tell = (schema: unknown) => unknown

/** Returns the OpenAPI description of the operations. */
export function openapiOf(operations: readonly Operation[]): object {
  const schemas = new Map<string, unknown>()
  /** Replaces shapes with a title by references to components, and removes what OpenAPI does not know. */
  const told: Tell = schema => {
    if (Array.isArray(schema)) return schema.map(told)
    if (typeof schema !== 'object' || schema === null) return schema
    const { title, expected: _, ...node } = schema as Node
    const own = Object.fromEntries(Object.entries(node).map(([name, value]) => [name, told(value)]))
    if (title === undefined || title === '') return own
    schemas.set(title, own)
    return { $ref: `#/components/schemas/${title}` }
  }
  const error = { description: 'An error.', content: json(told(ERROR)) }
  const paths: Record<string, Record<string, unknown>> = {
    '/session': {
      post: {
        operationId: 'postSession',
        summary: 'Begin a session of the page with a token.',
        security: [],
        requestBody: {
          required: true,
          content: json({ type: 'object', required: ['token'], properties: { token: { type: 'string' } } }),
        },
        responses: { 200: { description: 'Done.', content: json(told(SESSION)) }, default: error },
      },
    },
  }
  for (const operation of operations)
    (paths[operation.path] ??= {})[operation.method.toLowerCase()] = describedOperation(operation, told, error)
  return {
    openapi: '3.1.0',
    info: { title: 'Tollgate admin API', version: '1.0.0' },
    servers: [{ url: '/admin/api' }],
    security: [{ token: [] }, { session: [] }],
    paths,
    components: {
      schemas: Object.fromEntries(schemas),
      securitySchemes: {
        token: { type: 'http', scheme: 'bearer' },
        session: { type: 'apiKey', in: 'cookie', name: 'tollgate_admin' },
      },
    },
  }
}

/** Describes one operation. @param error the response of a failure */
function describedOperation(operation: Operation, told: Tell, error: object): object {
  const { method, path, summary, scope, body, status = 200 } = operation
  const parameters = parametersOf(operation, told)
  const replied = operation.page ? listOf(operation.reply ?? ENTRY) : operation.reply
  const content = {
    ...(replied !== undefined && json(told(replied))),
    ...(operation.page && { 'text/csv': { schema: { type: 'string' } } }),
    ...(path.endsWith('/stream') && { 'text/event-stream': { schema: { type: 'string' } } }),
    ...(path === '/openapi.json' && json({ type: 'object' })),
  }
  const empty = Object.keys(content).length === 0
  return {
    operationId: idOf(method, path),
    summary,
    description: `Needs the scope \`${scope}\`.`,
    ...(parameters.length > 0 && { parameters }),
    ...(body !== undefined && { requestBody: { required: true, content: json(told(body)) } }),
    responses: {
      [empty ? 204 : status]: { description: 'Done.', ...(!empty && { content }) },
      default: error,
    },
  }
}

/** Returns the parameters of an operation: those of its path and of its query, and its idempotency key. */
function parametersOf({ path, query, creates }: Operation, told: Tell): object[] {
  const named = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name)
  const asked = Object.entries(((query as Node | undefined)?.['properties'] ?? {}) as Record<string, Node>)
  const idempotencyKey = {
    name: 'idempotency-key',
    in: 'header',
    description: 'A request that repeats it changes nothing and gets the same answer.',
    schema: { type: 'string', maxLength: 255 },
  }
  return [
    ...named.map(name => ({ name, in: 'path', required: true, schema: { type: 'string' } })),
    ...asked.map(([name, schema]) => ({ name, in: 'query', schema: told(schema) })),
    ...(creates ? [idempotencyKey] : []),
  ]
}

function json(schema: unknown): { 'application/json': { schema: unknown } } {
  return { 'application/json': { schema } }
}

function idOf(method: string, path: string): string {
  const words = path
    .replace(/\.json$/, '')
    .split(/[/{}-]+/)
    .filter(word => word !== '')
  return method.toLowerCase() + words.map(word => word[0]?.toUpperCase() + word.slice(1)).join('')
}
