//go:build !race

package gate_test

// thrift divides the volume of tests under the race detector.
const thrift = 1
