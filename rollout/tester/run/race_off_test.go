//go:build !race

package run_test

// thrift divides the volume of tests under the race detector.
const thrift = 1
