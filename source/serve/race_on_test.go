//go:build race

package serve_test

// race says that the race detector is on: tests are thrifty then.
const race = true
