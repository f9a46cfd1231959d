package object_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/git/internal/object"
)

// An object of another type, or with more bytes than are allowed, is refused.
func TestRead(t *testing.T) {
	d := database{}
	id := d.add(object.Blob, "hello")
	if b, err := object.Read(d, id, object.Blob, 5); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := object.Read(d, id, object.Blob, 4); err == nil || !strings.Contains(err.Error(), "more than the 4") {
		t.Errorf("too large: %v", err)
	}
	if _, err := object.Read(d, id, object.Tree, 5); !errors.Is(err, object.ErrCorrupt) {
		t.Errorf("wrong type: %v", err)
	}
}
