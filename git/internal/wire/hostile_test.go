package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv/measure"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/wire"
)

func TestHostileGreeting(t *testing.T) {
	for _, tt := range []struct {
		name, greeting string
		want           error
	}{
		{"empty", "", wire.ErrProtocol},
		{"torn length", "00", wire.ErrProtocol},
		{"no length", "<html>", wire.ErrProtocol},
		{"length 3", "0003", wire.ErrProtocol},
		{"length too large", "fff1" + strings.Repeat("x", 65517), wire.ErrProtocol},
		{"torn line", "0010vers", wire.ErrProtocol},
		{"mark", delim, wire.ErrProtocol},
		{"service without flush", pkt("# service=git-upload-pack\n") + pkt(caps2), wire.ErrProtocol},
		{"other service", pkt("# service=git-receive-pack\n") + flush, wire.ErrProtocol},
		{"version 3", pkt("version 3\n") + flush, wire.ErrProtocol},
		{"capabilities without end", pkt(caps2), wire.ErrProtocol},
		{"capabilities end in a mark", pkt(caps2) + delim, wire.ErrProtocol},
		{"no fetch", pkt("version 2\nls-refs\n") + flush, wire.ErrProtocol},
		{"unknown hash", pkt("version 2\nls-refs\nfetch\nobject-format=md5\n") + flush, wire.ErrProtocol},
		{"endless capabilities", pkt(caps2+"\n") + strings.Repeat(pkt(strings.Repeat("x", 65000)), 10), wire.ErrLimit},
		{"error", pkt("ERR no \x1b[31mgood\n"), wire.ErrRemote},
		{"error of absence", pkt("ERR Repository does not exist\n"), wire.ErrNotFound},
		{"error of access", pkt("ERR access denied\n"), wire.ErrAuth},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, u := serve(t, &scriptedServer{greeting: tt.greeting})
			_, err := dial(context.Background(), wire.HTTP(client, u))
			e, ok := errors.AsType[*wire.Error](err)
			if !ok || e.Phase != wire.Advertisement || !errors.Is(err, tt.want) || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

func TestHostileRefs(t *testing.T) {
	type query struct {
		exact bool
		names []string
	}
	good := ones + " refs/heads/main\n"
	first := ones + " HEAD\x00symref=HEAD:refs/heads/../x shallow\n"
	for _, tt := range []struct {
		name, greeting, refs string
		q                    query
		want                 error
		n                    int // refs
	}{
		{"good", greeting2, pkt(good) + flush, query{}, nil, 1},
		{"nothing", greeting2, "", query{}, wire.ErrProtocol, 0},
		{"no end", greeting2, pkt(good), query{}, wire.ErrProtocol, 0},
		{"ends in a mark", greeting2, pkt(good) + delim, query{}, wire.ErrProtocol, 0},
		{"no name", greeting2, pkt(ones + "\n"), query{}, wire.ErrProtocol, 0},
		{"short id", greeting2, pkt("1234 refs/heads/main\n"), query{}, wire.ErrProtocol, 0},
		{"id of another format", greeting2, pkt(strings.Repeat("1", 64) + " refs/heads/main\n"), query{}, wire.ErrProtocol, 0},
		{"id not hexadecimal", greeting2, pkt(strings.Repeat("z", 40) + " refs/heads/main\n"), query{}, wire.ErrProtocol, 0},
		{"bad peeled id", greeting2, pkt(ones + " refs/tags/a peeled:12\n"), query{}, wire.ErrProtocol, 0},
		{"unborn", greeting2, pkt("unborn HEAD symref-target:refs/heads/main\n") + flush, query{}, wire.ErrEmpty, 0},
		{"empty", greeting2, flush, query{true, []string{"HEAD"}}, wire.ErrEmpty, 0},
		{"prefix ignored", greeting2, pkt(good+ones+" refs/tags/a\n") + flush, query{false, []string{"refs/tags/"}}, nil, 1},
		{"error", greeting2, pkt(good + "ERR out of order\n"), query{}, wire.ErrRemote, 0},
		{"version 0", pkt(first+good) + flush, "", query{}, nil, 2},
		{"version 0 without end", pkt(first + good), "", query{}, wire.ErrProtocol, 0},
		{"version 0 with a mark", pkt(first+good) + delim, "", query{}, wire.ErrProtocol, 0},
		{"version 0 without a name", pkt(first + ones + "\n"), "", query{}, wire.ErrProtocol, 0},
		{"version 0 short id", pkt(first + "12 refs/heads/x\n"), "", query{}, wire.ErrProtocol, 0},
		{"version 0 bad peeled id", pkt(first + "12 refs/heads/x^{}\n"), "", query{}, wire.ErrProtocol, 0},
		{"version 0 empty", pkt(zeros+" capabilities^{}\x00shallow\n") + flush, "", query{}, wire.ErrEmpty, 0},
		{"version 0 empty without capabilities", pkt("# service=git-upload-pack\n") + flush + flush, "", query{true, []string{"HEAD"}}, wire.ErrEmpty, 0},
		{"version 1", pkt("version 1\n"+first) + flush, "", query{}, nil, 1},
		{"version 1 empty", pkt("version 1\n") + flush, "", query{}, wire.ErrEmpty, 0},
		{"query not valid", greeting2, "", query{true, []string{"refs/heads/a\nb"}}, errAny, 0},
		{"prefix not valid", greeting2, "", query{false, []string{"refs/heads/a\n"}}, errAny, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, u := serve(t, &scriptedServer{greeting: tt.greeting, refs: tt.refs})
			r := wire.New(wire.HTTP(client, u), "")
			refs, err := r.Refs(context.Background(), tt.q.exact, tt.q.names...)
			if tt.want == nil {
				if err != nil || len(refs) != tt.n || refs[0].Symref != "" {
					t.Errorf("%v, %v", refs, err)
				}
				return
			}
			if e, ok := errors.AsType[*wire.Error](err); !ok || e.Phase != wire.LsRefs || tt.want != errAny && !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

var errAny = errors.New("any error")

func TestHostileNames(t *testing.T) {
	names := map[string]bool{
		"HEAD": true, "FETCH_HEAD": true, "refs/heads/main": true, "refs/heads/größe": true, "refs/pull/1/head": true, "refs/heads/@": true,
		"refs/heads/a.b/c-d_e+f": true, "refs/heads/-x": true,
		"": false, "/": false, "main": false, "Head": false, "refs/heads/": false, "/refs/heads/a": false, "refs//a": false, "refs/heads/..": false,
		"refs/heads/a..b": false, "refs/heads/.git": false, "refs/../a": false, "refs/heads/a.lock": false, "refs/heads/a.lock/b": false,
		"refs/heads/a.": false, "refs/heads/a~1": false, "refs/heads/a^": false, "refs/heads/a:b": false, "refs/heads/a?": false,
		"refs/heads/a*": false, "refs/heads/[a": false, `refs/heads/a\b`: false, "refs/heads/a@{0}": false, "refs/heads/\x01": false,
		"refs/heads/\x7f": false, "refs/heads/a\x00b": false, "@": false,
	}
	for _, version := range []int{0, 2} {
		list := ""
		for name := range names {
			list += fmt.Sprintf("%04x%s %s\n", len(name)+46, ones, name)
		}
		s := &scriptedServer{greeting: greeting2, refs: list + flush}
		if version == 0 {
			s = &scriptedServer{greeting: pkt(ones+" HEAD\x00x\n") + list + flush}
		}
		client, u := serve(t, s)
		refs, err := open(t, wire.HTTP(client, u)).Refs(context.Background(), false)
		must(t, err)
		seen := map[string]bool{}
		for _, ref := range refs {
			seen[ref.Name] = true
		}
		for name, valid := range names {
			if valid != seen[name] {
				t.Errorf("version %d: %q: valid %v, returned %v", version, name, valid, seen[name])
			}
		}
	}
}

func TestHostileFetch(t *testing.T) {
	first := pkt(ones+" HEAD\x00shallow filter side-band-64k\n"+ones+" refs/heads/main\n") + flush
	pack := band(1, "PACK") + band(2, "work\n") + "0005\x01" + band(1, "1234") + flush
	for _, tt := range []struct {
		name, greeting, fetch string
		phase                 wire.Phase
		want                  error
	}{
		{"good", greeting2, pkt("packfile\n") + pack, "", nil},
		{"all sections", greeting2, pkt("acknowledgments\nNAK\nACK "+ones+"\nready\n") + delim + pkt("shallow-info\nshallow "+ones+"\nunshallow "+ones+"\n") + delim +
			pkt("wanted-refs\n"+ones+" refs/heads/main\n") + delim + pkt("packfile\n") + pack, "", nil},
		{"nothing", greeting2, "", wire.Fetch, wire.ErrProtocol},
		{"flush", greeting2, flush, wire.Fetch, wire.ErrProtocol},
		{"no pack", greeting2, pkt("acknowledgments\nNAK\n") + flush, wire.Fetch, wire.ErrProtocol},
		{"torn section", greeting2, pkt("shallow-info\nshallow " + ones + "\n"), wire.Fetch, wire.ErrProtocol},
		{"bad shallow id", greeting2, pkt("shallow-info\nshallow 12\n") + delim, wire.Fetch, wire.ErrProtocol},
		{"endless shallow list", greeting2, pkt("shallow-info\n") + strings.Repeat(pkt("shallow "+ones+"\n"), 320_000), wire.Fetch, wire.ErrLimit},
		{"error before the pack", greeting2, pkt("ERR upload-pack: not our ref " + ones + "\n"), wire.Fetch, wire.ErrUnreachable},
		{"error in the pack", greeting2, pkt("packfile\n") + band(1, "PACK") + pkt("ERR repository is on fire\n"), wire.Pack, wire.ErrRemote},
		{"error in its band", greeting2, pkt("packfile\n") + band(1, "PACK") + band(3, "on \x1b[31mfire"), wire.Pack, wire.ErrRemote},
		{"truncated pack", greeting2, pkt("packfile\n") + band(1, "PACK"), wire.Pack, wire.ErrProtocol},
		{"truncated band", greeting2, pkt("packfile\n") + "0100\x01PACK", wire.Pack, wire.ErrProtocol},
		{"truncated progress", greeting2, pkt("packfile\n") + "0100\x02work", wire.Pack, wire.ErrProtocol},
		{"no band", greeting2, pkt("packfile\n") + "0004" + "0005", wire.Pack, wire.ErrProtocol},
		{"band 4", greeting2, pkt("packfile\n") + band(4, "x"), wire.Pack, wire.ErrProtocol},
		{"empty pack", greeting2, pkt("packfile\n") + flush, wire.Pack, wire.ErrProtocol},
		{"mark in the pack", greeting2, pkt("packfile\n") + band(1, "PACK") + delim, wire.Pack, wire.ErrProtocol},
		{"version 0", first, pkt("shallow "+ones+"\n") + flush + pkt("ACK "+ones+" common\nNAK\n") + pack, "", nil},
		{"version 0 without bands", pkt(ones+" HEAD\x00shallow\n") + flush, flush + pkt("NAK\n") + "PACK1234", "", nil},
		{"version 0 without answer", first, "", wire.Fetch, wire.ErrProtocol},
		{"version 0 torn shallow list", first, pkt("shallow " + ones + "\n"), wire.Fetch, wire.ErrProtocol},
		{"version 0 mark in the shallow list", first, pkt("shallow "+ones+"\n") + delim, wire.Fetch, wire.ErrProtocol},
		{"version 0 bad shallow id", first, pkt("shallow 12\n") + flush, wire.Fetch, wire.ErrProtocol},
		{"version 0 text", first, flush + pkt("hello\n"), wire.Fetch, wire.ErrProtocol},
		{"version 0 error", first, flush + pkt("ERR not our ref\n"), wire.Fetch, wire.ErrUnreachable},
		{"version 0 truncated", first, flush + pkt("NAK\n") + band(1, "PACK"), wire.Pack, wire.ErrProtocol},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, u := serve(t, &scriptedServer{greeting: tt.greeting, fetch: tt.fetch})
			f, err := open(t, wire.HTTP(client, u)).Fetch(context.Background(), wire.FetchRequest{Wants: []object.ID{id(t, ones)}, Depth: 1})
			if err == nil {
				b, readErr := readAll(f)
				err = check(string(b), readErr)
				f.Close()
			}
			if tt.want == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if e, ok := errors.AsType[*wire.Error](err); !ok || e.Phase != tt.phase || !errors.Is(err, tt.want) || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

func check(pack string, err error) error {
	if err == nil && pack != "PACK1234" {
		return fmt.Errorf("pack %q", pack)
	}
	return err
}

// Reading a pack ends at its limit, even if the server sends tiny pkt-lines.
func TestEndlessPack(t *testing.T) {
	endless := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			io.WriteString(w, greeting2)
			return
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		io.WriteString(w, pkt("packfile\n"))
		for some := strings.Repeat(band(1, "x")+"0005\x02", 1000); ; {
			if _, err := io.WriteString(w, some); err != nil {
				return
			}
		}
	})
	client, u := serve(t, endless)
	r := open(t, wire.HTTP(client, u))
	f, err := r.Fetch(context.Background(), wire.FetchRequest{Wants: []object.ID{id(t, ones)}, MaxBytes: 1 << 20})
	must(t, err)
	defer f.Close()
	if n, err := io.Copy(io.Discard, f); !errors.Is(err, wire.ErrLimit) || n > 1<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// In both versions a list of refs that is too long takes only memory for the refs
// that match.
func TestManyRefs(t *testing.T) {
	measure.WithoutRace(t)
	const n = 510_000
	var list []byte
	for i := range n {
		list = strconv.AppendInt(append(list, "0047"+ones+" refs/heads/branch-"...), int64(1_000_000+i), 10)
		list = append(list, '\n')
	}
	list = append(list, flush...)
	for version, greeting := range map[int]string{0: pkt(ones + " HEAD\x00x\n"), 2: greeting2} {
		var read []int64 // live bytes after nine tenths of the list
		give := func(w http.ResponseWriter) {
			split := len(list) / 10 * 9
			w.Write(list[:split])
			read = append(read, measure.LiveBytes())
			w.Write(list[split:])
		}
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
				give(w)
				return
			}
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			io.WriteString(w, greeting)
			if version == 0 {
				give(w)
			}
		})
		client, u := serve(t, h)
		before := measure.LiveBytes()
		r := wire.New(wire.HTTP(client, u), "")
		defer r.Close()
		refs, err := r.Refs(context.Background(), false, "refs/heads/branch-1499")
		if err != nil || len(refs) != 1000 {
			t.Fatalf("version %d: %d refs, %v", version, len(refs), err)
		}
		if len(read) != 1 || read[0]-before > 16<<20 {
			t.Errorf("version %d: the heap grew from %d bytes to %d", version, before, read)
		}
		_, err = r.Refs(context.Background(), false)
		if !errors.Is(err, wire.ErrLimit) {
			t.Errorf("version %d: all refs: %v", version, err)
		}
	}
}
