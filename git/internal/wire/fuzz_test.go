package wire

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/git/internal/object"
)

// A fuzzed server answers everything with the same bytes.
type fuzzed struct{ greeting, answer string }

func (f *fuzzed) String() string                     { return "fuzzed" }
func (f *fuzzed) dial(context.Context) (conn, error) { return f, nil }
func (f *fuzzed) ready() bool                        { return true }
func (f *fuzzed) close()                             {}
func (f *fuzzed) greet(context.Context) (stream, error) {
	return &text{strings.NewReader(f.greeting)}, nil
}
func (f *fuzzed) ask(context.Context, []byte) (stream, error) {
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

func FuzzPktLine(f *testing.F) {
	for _, s := range []string{"", "0000", "0001", "0002", "0003", "0004", "0005a", "fff0", "fff1", "FFFF", "zzzz", "000", "0009hello0000"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := newPktReader(strings.NewReader(string(b)), int64(len(b)/2))
		for total := 0; ; {
			k, payload, err := p.next()
			if err != nil {
				return
			}
			if k > pktData || k != pktData && len(payload) > 0 {
				t.Fatalf("kind %d with %d bytes", k, len(payload))
			}
			if total += pktHeader + len(payload); total > len(b)/2 {
				t.Fatal("more was read than the limit allows")
			}
		}
	})
}

func FuzzAdvertisement(f *testing.F) {
	for _, s := range []string{greeting0, greeting2, "000eversion 1\n" + greeting0, "001e# service=git-upload-pack\n0000" + greeting0, "0000", "000cERR no\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Open(t.Context(), &fuzzed{greeting: string(b), answer: string(b)})
		if knownError(t, err); err != nil {
			return
		}
		refs, err := r.Refs(t.Context(), RefQuery{Peel: true, Symrefs: true, MaxRefs: 10})
		knownError(t, err)
		checkRefs(t, r, refs, 10)
		r.Close()
	})
}

func FuzzRefs(f *testing.F) {
	for _, s := range []string{
		"003d" + one + " refs/heads/main\n0000", "0050" + one + " HEAD symref-target:refs/heads/main\n0000",
		"006d" + one + " refs/tags/v1 peeled:" + one + "\n0000", "0000", "0010unborn HEAD\n0000",
	} {
		f.Add([]byte(s), "refs/heads/main", "refs/tags/")
	}
	f.Fuzz(func(t *testing.T, b []byte, exact, prefix string) {
		for _, greeting := range []string{greeting2, greeting0[:0x45] + string(b)} {
			r, err := Open(t.Context(), &fuzzed{greeting: greeting, answer: string(b)})
			if knownError(t, err); err != nil {
				continue
			}
			refs, err := r.Refs(t.Context(), RefQuery{Exact: []string{exact}, Prefixes: []string{prefix}, Peel: true, Symrefs: true})
			if err != nil {
				continue
			}
			checkRefs(t, r, refs, len(b)/40+1)
			for _, ref := range refs {
				if ref.Name != exact && !strings.HasPrefix(ref.Name, prefix) {
					t.Errorf("ref %q was not asked for", ref.Name)
				}
			}
		}
	})
}

func checkRefs(t *testing.T, r *Remote, refs []Ref, most int) {
	if len(refs) > most {
		t.Errorf("%d refs", len(refs))
	}
	for _, ref := range refs {
		if !validRef(ref.Name) || len(ref.ID.String()) != r.g.hexLen() || ref.Symref != "" && !validRef(ref.Symref) {
			t.Errorf("ref %+v", ref)
		}
	}
}

func FuzzFetchResponse(f *testing.F) {
	pack := "0009\x01PACK0009\x02work0009\x01rest0000"
	for _, s := range []string{
		"000dpackfile\n" + pack, "0011shallow-info\n0035shallow " + one + "\n0001000dpackfile\n" + pack,
		"0035shallow " + one + "\n00000008NAK\n" + pack, "00000008NAK\nPACKrest", "0009\x03fire", "000dERR fire\n", "000dpackfile\n0005\x01" + pack,
	} {
		f.Add([]byte(s))
	}
	want, err := object.ParseID(one)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, greeting := range []string{greeting2, greeting0, strings.Replace(greeting0, "side-band-64k", "side-hand-64k", 1)} {
			r, err := Open(t.Context(), &fuzzed{greeting: greeting, answer: string(b)})
			if err != nil {
				t.Fatal(err)
			}
			var packs [2]string
			var errs [2]error
			for i, read := range []func(io.Writer, io.Reader) (int64, error){io.Copy, plainCopy} {
				f, err := r.Fetch(t.Context(), FetchRequest{Wants: []object.ID{want}, Depth: 1, Progress: func(string) {}, MaxBytes: int64(len(b))})
				if knownError(t, err); err != nil {
					continue
				}
				var w strings.Builder
				_, errs[i] = read(&w, f.Pack)
				packs[i] = w.String()
				knownError(t, errs[i])
				f.Close()
			}
			if packs[0] != packs[1] || (errs[0] == nil) != (errs[1] == nil) || len(packs[0]) > len(b) {
				t.Errorf("WriteTo: %d bytes, %v; Read: %d bytes, %v", len(packs[0]), errs[0], len(packs[1]), errs[1])
			}
		}
	})
}

// plainCopy hides WriteTo.
func plainCopy(w io.Writer, r io.Reader) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{r})
}

func FuzzKnownHosts(f *testing.F) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
	for _, s := range []string{
		"", "# comment", "h " + key, "h,!i,*.k " + key + " " + key, "[h]:2222 " + key + " comment", "@revoked * " + key, "@cert-authority h " + key,
		"|1|AAAA|BBBB " + key, "|1|", "@", "[ " + key, `\ ` + key, "h ssh-rsa AAAA",
	} {
		f.Add([]byte(s), "h", "22")
	}
	f.Fuzz(func(t *testing.T, b []byte, host, port string) {
		k := parseKnownHosts(b)
		if len(k.entries) > len(b)/60 {
			t.Errorf("%d keys in %d bytes", len(k.entries), len(b))
		}
		h, err := k.of(host, port)
		if err != nil {
			return
		}
		for _, key := range append(h.keys, h.revoked...) {
			if err := h.check(key); err == nil && len(h.keys) == 0 {
				t.Error("a revoked key was accepted")
			}
		}
		h.algorithms(nil)
	})
}

func BenchmarkPack(b *testing.B) {
	var answer strings.Builder
	answer.WriteString("000dpackfile\n")
	line := "fff0\x01" + strings.Repeat("x", pktPayload-1)
	const lines = 1600
	for range lines {
		answer.WriteString(line)
	}
	answer.WriteString("0000")
	want, _ := object.ParseID(one)
	for name, copy := range map[string]func(io.Writer, io.Reader) (int64, error){"WriteTo": io.Copy, "Read": plainCopy} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(lines * (pktPayload - 1))
			for b.Loop() {
				r, err := Open(b.Context(), &fuzzed{greeting: greeting2, answer: answer.String()})
				if err != nil {
					b.Fatal(err)
				}
				f, err := r.Fetch(b.Context(), FetchRequest{Wants: []object.ID{want}})
				if err != nil {
					b.Fatal(err)
				}
				if n, err := copy(struct{ io.Writer }{io.Discard}, f.Pack); err != nil || n != lines*(pktPayload-1) {
					b.Fatal(n, err)
				}
				f.Close()
			}
		})
	}
}
