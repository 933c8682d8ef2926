/** The simulations of `npm test`, with more steps. */
process.env['STEPS'] ??= '3500'
await import('./simulation.test.ts')
await import('./quota-simulation.test.ts')
await import('./plan-simulation.test.ts')
