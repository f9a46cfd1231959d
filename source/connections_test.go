package source_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/headgate-io/headgate/source"
)

// The transports that were not used for the longest time are given up first.
func TestConnectionsBounded(t *testing.T) {
	var c source.Connections
	made := 0
	use := func(key string) bool {
		before := made
		c.Transport(key, func() *http.Transport { made++; return new(http.Transport) })
		return made > before
	}
	use("often")
	for i := range 200 {
		use(fmt.Sprint(i))
		if use("often") {
			t.Fatal("what is used is given up")
		}
	}
	if use("199") || use("137") == use("136") || !use("0") {
		t.Error("not the last 64 are kept")
	}
	c.Close()
	if !use("often") {
		t.Error("what was closed is kept")
	}
}
