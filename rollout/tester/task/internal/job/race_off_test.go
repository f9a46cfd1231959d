//go:build !race

package job_test

const raceDetector = false
