//go:build race

package controller_test

// race says that the race detector is on: tests are thrifty then.
const race = true
