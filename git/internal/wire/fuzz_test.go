package wire

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/internal/testenv"
)

// A fixedServer is a server that sends fixed bytes, whatever the request.
type fixedServer struct{ greeting, answer string }

func (f *fixedServer) String() string                     { return "fuzzed" }
func (f *fixedServer) dial(context.Context) (conn, error) { return f, nil }
func (f *fixedServer) ready() bool                        { return true }
func (f *fixedServer) close()                             {}
func (f *fixedServer) greet(context.Context) (stream, error) {
	return &text{strings.NewReader(f.greeting)}, nil
}
func (f *fixedServer) sendRequest(context.Context, []byte) (stream, error) {
	return &text{strings.NewReader(f.answer)}, nil
}

type text struct{ io.Reader }

func (*text) abort()       {}
func (*text) release(bool) {}

const (
	one       = "1111111111111111111111111111111111111111"
	greeting0 = "0045" + one + " HEAD\x00shallow filter side-band-64k\n" + "003f" + one + " refs/heads/main\n0000"
	greeting2 = "000eversion 2\n000cls-refs\n0019fetch=shallow filter\n0000"
)

// knownError fails the test unless err is nil or an *Error that can be printed.
func knownError(t *testing.T, err error) {
	if err == nil {
		return
	}
	e, ok := errors.AsType[*Error](err)
	if !ok || len(e.Error()) > 8<<10 || strings.ContainsAny(e.Error(), "\x00\x1b\n") {
		t.Errorf("error %q", err)
	}
}

// FuzzRemote lets a server answer ls-refs and fetch with any bytes.
func FuzzRemote(f *testing.F) {
	pack := "0009\x01PACK0009\x02work0009\x01rest0000"
	for _, greeting := range []string{greeting0, greeting2, "000eversion 1\n" + greeting0, "001e# service=git-upload-pack\n0000" + greeting0, "0000", "000cERR no\n", "fff1", "zzzz", "0003"} {
		for _, answer := range []string{
			"003d" + one + " refs/heads/main\n0000", "006d" + one + " refs/tags/v1 peeled:" + one + "\n0000", "0010unborn HEAD\n0000",
			"0011shallow-info\n0035shallow " + one + "\n0001000dpackfile\n" + pack, "0035shallow " + one + "\n00000008NAK\n" + pack,
			"00000008NAK\nPACKrest", "0009\x03fire", "000dpackfile\n0005\x01" + pack,
		} {
			f.Add([]byte(greeting), []byte(answer), "refs/heads/main", true)
		}
	}
	want, err := object.ParseID(one)
	must(f, err)
	f.Fuzz(func(t *testing.T, greeting, answer []byte, name string, exact bool) {
		r := New(&fixedServer{greeting: string(greeting), answer: string(answer)}, "")
		defer r.Close()
		refs, err := r.Refs(t.Context(), exact, name)
		knownError(t, err)
		if len(refs) > (len(greeting)+len(answer))/40+1 {
			t.Errorf("%d refs", len(refs))
		}
		for _, ref := range refs {
			if !validRef(ref.Name) || ref.ID.Format() != r.Format() || ref.Symref != "" && !validRef(ref.Symref) || exact && ref.Name != name || !strings.HasPrefix(ref.Name, name) {
				t.Errorf("ref %+v", ref)
			}
		}
		p, err := r.Fetch(t.Context(), FetchRequest{Wants: []object.ID{want}, Depth: 1, MaxBytes: int64(len(answer))})
		if knownError(t, err); err != nil {
			return
		}
		defer p.Close()
		n, err := io.Copy(io.Discard, p)
		if knownError(t, err); n > int64(len(answer)) {
			t.Errorf("%d bytes of a pack in %d", n, len(answer))
		}
	})
}

var must = testenv.Must
