package lru_test

import (
	"testing"

	"github.com/headgate-io/headgate/git/internal/lru"
)

func TestCache(t *testing.T) {
	c := lru.New[string, int](10)
	c.Keep("a", 1, 4)
	c.Keep("b", 2, 4)
	c.Keep("a", 9, 4)
	if v, ok := c.Find("a"); !ok || v != 1 {
		t.Errorf("a is %d, %v", v, ok)
	}
	c.Keep("c", 3, 4)
	if _, ok := c.Find("b"); ok {
		t.Error("b is kept, used before a and c")
	}
	c.Keep("huge", 4, 11)
	for key, want := range map[string]int{"a": 1, "c": 3, "huge": 4} {
		if v, ok := c.Find(key); !ok || v != want {
			t.Errorf("%s is %d, %v", key, v, ok)
		}
	}
	c.Keep("vast", 5, 12)
	if _, ok := c.Find("huge"); ok {
		t.Error("two values beyond the limit are kept")
	}
}
