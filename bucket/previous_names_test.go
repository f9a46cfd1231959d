package bucket_test

import (
	"strings"
	"testing"
)

// Names that an archive holds in headers of their own, or in an order that is not that of keys.
func TestIncrementalNames(t *testing.T) {
	long := strings.Repeat("n", 255)
	keys := []string{
		"é/ü", "a b", "con", "a:b", "A", "e\u0301", "\U0001f600", "PaxHeaders.0/x", "x.", "-", "~", "..a", "a/" + long, "a-" + long[:99], "a." + long[:98],
		long[:100], long[:101], long + "/" + long + "/x", "d/" + strings.Repeat(long+"/", 15) + "x", "d!/x", "d/x", "d0/x", "d.x", " /x", "\ufeffx", "a\u2028b",
	}
	d := newMemory("changes", "1")
	for _, key := range keys {
		d.put(key, "content of "+key)
	}
	r := newRig(t, d)
	r.run(t)
	d.put("changes", "2")
	if got := r.run(t); got != "changes" {
		t.Errorf("opened %q", got)
	}
	r.same(t)
}
