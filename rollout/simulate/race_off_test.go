//go:build !race

package simulate

// thrift divides the volume of tests under the race detector.
const thrift = 1
