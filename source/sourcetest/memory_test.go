package sourcetest

import "testing"

func TestMemory(t *testing.T) { Run(t, Memory()) }
