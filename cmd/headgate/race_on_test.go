//go:build race

package main

// race says that the race detector is on: tests are thrifty then.
const race = true
