package bucket_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/transport"
)

func TestStatusError(t *testing.T) {
	for _, c := range []struct {
		err  bucket.StatusError
		text string
		is   error
	}{
		{bucket.StatusError{Doing: "list objects", Status: 404, Code: "NoSuchBucket", Message: "It is not there."}, "list objects: 404 Not Found: NoSuchBucket: It is not there", fs.ErrNotExist},
		{bucket.StatusError{Doing: "read a", Status: 401, Hint: "log in"}, "read a: 401 Unauthorized: log in", fs.ErrPermission},
		{bucket.StatusError{Doing: "read a", Status: 403}, "read a: 403 Forbidden", fs.ErrPermission},
		{bucket.StatusError{Doing: "read a", Status: 400, Code: "ExpiredToken", Refused: true}, "read a: 400 Bad Request: ExpiredToken", fs.ErrPermission},
		{bucket.StatusError{Doing: "read a", Status: 412, Code: "ConditionNotMet"}, "read a: 412 Precondition Failed: ConditionNotMet", bucket.ErrChanged},
		{bucket.StatusError{Doing: "list objects", Status: 503, After: 90 * time.Second}, "list objects: 503 Service Unavailable: try again in 1m30s", nil},
		{bucket.StatusError{Doing: "list objects", Message: "..."}, "list objects", nil},
	} {
		if got := c.err.Error(); got != c.text {
			t.Errorf("%q, want %q", got, c.text)
		}
		for _, target := range []error{fs.ErrNotExist, fs.ErrPermission, bucket.ErrChanged} {
			if errors.Is(&c.err, target) != (target == c.is) {
				t.Errorf("%v is %v, or is not", &c.err, target)
			}
		}
		if c.err.RetryAfter() != c.err.After {
			t.Error(c.err.RetryAfter())
		}
	}
}

func TestSaid(t *testing.T) {
	a := &bucket.Access{Vault: new(transport.Vault)}
	a.Vault.Conceal("s3cr3t-canary")
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{" no\r\nand no\n", "no; and no"},
		{"\x1b[31mnot s3cr3t-canary", "not ***"},
		{strings.Repeat("a", 256), strings.Repeat("a", 256)},
		{strings.Repeat("a", 257), strings.Repeat("a", 253) + "…"},
		{strings.Repeat("ä", 129), strings.Repeat("ä", 126) + "…"},
		{strings.Repeat("word ", 100), strings.Repeat("word ", 49) + "word…"}, // after a word
		{strings.Repeat("a", 250) + "s3cr3t-canary", strings.Repeat("a", 250) + "***"},
	} {
		if got := a.Said(c.text); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}
