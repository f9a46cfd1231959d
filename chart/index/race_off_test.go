//go:build !race

package index_test

// thrift divides the volume of tests under the race detector.
const thrift = 1
