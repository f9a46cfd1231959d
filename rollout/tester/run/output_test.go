package run_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

// writeTask is a task that writes pieces.
func writeTask(pieces ...string) run.Task {
	return task(func(_ context.Context, out io.Writer) error {
		for _, piece := range pieces {
			if n, err := io.WriteString(out, piece); n != len(piece) || err != nil {
				return fmt.Errorf("wrote %d of %d bytes, %w", n, len(piece), err)
			}
		}
		return nil
	})
}

func readOutput(t *testing.T, d *run.Runner, id string, follow bool) string {
	t.Helper()
	var b strings.Builder
	must(t, d.Output(t.Context(), id, follow, &b))
	return b.String()
}

func TestOutput(t *testing.T) {
	d := open(t, run.Config{OutputLimit: 10})
	for name, test := range map[string]struct {
		pieces    []string
		limit     int
		want      string
		truncated bool
	}{
		"none":                {nil, 0, "", false},
		"little":              {[]string{"abc", "", "def"}, 0, "abcdef", false},
		"exactly":             {[]string{"abcdefghij"}, 0, "abcdefghij", false},
		"one too many":        {[]string{"abcdefghijk"}, 0, "abcde\n[1 bytes left out]\nghijk", true},
		"byte by byte":        {strings.Split("abcdefghijklmnopq", ""), 0, "abcde\n[7 bytes left out]\nmnopq", true},
		"limit of request":    {[]string{"abcdef"}, 4, "ab\n[2 bytes left out]\nef", true},
		"limit of one":        {[]string{"abcdef"}, 1, "\n[5 bytes left out]\nf", true},
		"limit above desk's":  {[]string{"abcdefghijk"}, 1000, "abcde\n[1 bytes left out]\nghijk", true},
		"character cut":       {[]string{"abcdäfghijklmänopqr"}, 0, "abcd\n[12 bytes left out]\nnopqr", true},
		"character in pieces": {[]string{"\xe5", "\xa4", "\xa7\xf0\x9f", "\x98\x80"}, 0, "大😀", false},
		"not characters":      {[]string{"a\xff\xfeb", "\xe5\xa4"}, 0, "a\ufffdb\ufffd", false},
		"no room for one":     {[]string{"😀😀😀"}, 3, "\n[12 bytes left out]\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := request(name)
			r.OutputLimit = test.limit
			got := wait(t, d, r, writeTask(test.pieces...))
			if got.Output != test.want || got.Truncated != test.truncated || got.Bytes != int64(len(strings.Join(test.pieces, ""))) {
				t.Errorf("got %q, truncated %t, %d bytes; want %q", got.Output, got.Truncated, got.Bytes, test.want)
			}
			testenv.Equal(t, readOutput(t, d, got.ID, true), test.want, "output")
		})
	}
}

// S-29: output takes no memory beyond its limit, and slow readers do not delay the task.
func TestMuchOutput(t *testing.T) {
	d := open(t, run.Config{})
	piece := bytes.Repeat([]byte("all work and no play makes jack a dull boy\n"), 1000)
	total := 64 << 20 / len(piece)
	before, peak := measure.LiveBytes(), int64(0)
	flood := task(func(_ context.Context, out io.Writer) error {
		for i := range total {
			if _, err := out.Write(piece); err != nil {
				return err
			}
			if i%(total/8) == 0 {
				peak = max(peak, measure.LiveBytes()-before)
			}
		}
		return nil
	})
	first := start(t, d, request("a"), flood)
	reader, writer := io.Pipe() // never read
	followed := make(chan error)
	go func() { followed <- d.Output(context.Background(), first.ID, true, writer) }()
	got := wait(t, d, request("a"), flood)
	if checkState(t, got, api.Succeeded); got.Bytes != int64(total*len(piece)) || !got.Truncated || len(got.Output) > 256<<10+100 {
		t.Errorf("%d bytes, of which %d are kept", got.Bytes, len(got.Output))
	}
	if peak > 8<<20 {
		t.Errorf("%d bytes of memory more than before", peak)
	}
	reader.CloseWithError(errors.New("gone"))
	if err := <-followed; err == nil || err.Error() != "gone" {
		t.Errorf("got %v", err)
	}
}

func TestFollow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := open(t, run.Config{})
		got := start(t, d, request("a"), task(func(_ context.Context, out io.Writer) error {
			for i := range 10 {
				fmt.Fprintf(out, "line %d\n", i)
				time.Sleep(time.Second)
			}
			return nil
		}))
		var want strings.Builder
		for i := range 10 {
			fmt.Fprintf(&want, "line %d\n", i)
		}
		const followers = 50
		ends := make(chan string)
		for i := range followers {
			go func() {
				time.Sleep(time.Duration(i) * 300 * time.Millisecond) // the last followers begin after the end
				ends <- readOutput(t, d, got.ID, true)
			}()
		}
		time.Sleep(500 * time.Millisecond)
		first := make([]byte, 100)
		reader, writer := io.Pipe()
		go d.Output(t.Context(), got.ID, true, writer)
		reader.Read(first)
		time.Sleep(500 * time.Millisecond)
		at := time.Now()
		if n, _ := reader.Read(first); string(first[:n]) != "line 1\n" || time.Since(at) != 0 {
			t.Errorf("after %v %q", time.Since(at), first[:n])
		}
		reader.Close()
		time.Sleep(1500 * time.Millisecond)
		if now := readOutput(t, d, got.ID, false); now != "line 0\nline 1\nline 2\n" {
			t.Errorf("now %q", now)
		}
		if now := lookUp(t, d, got.ID); now.Output != "line 0\nline 1\nline 2\n" || now.Bytes != 21 || now.Duration != 2500 {
			t.Errorf("now %+v", now)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Output(ctx, got.ID, true, io.Discard); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		for range followers {
			testenv.Equal(t, <-ends, want.String(), "followed")
		}
	})
}

// A slowFollower checks that each piece consists of complete characters, in order.
type slowFollower struct {
	t   *testing.T
	all strings.Builder
}

func (s *slowFollower) Write(b []byte) (int, error) {
	if !utf8.Valid(b) {
		s.t.Errorf("not whole characters: %q", b[max(0, len(b)-10):])
	}
	time.Sleep(time.Second)
	return s.all.Write(b)
}

func TestSlowFollowerMissesTheMiddle(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := open(t, run.Config{OutputLimit: 100})
		got := start(t, d, request("a"), task(func(_ context.Context, out io.Writer) error {
			for i := range 1000 {
				fmt.Fprintf(out, "größe %d\n", i)
				time.Sleep(10 * time.Millisecond)
			}
			return nil
		}))
		s := &slowFollower{t: t}
		must(t, d.Output(t.Context(), got.ID, true, s))
		text := s.all.String()
		if !strings.HasPrefix(text, "größe 0\n") || !strings.HasSuffix(text, "größe 999\n") {
			t.Errorf("got %q", text)
		}
		read, lost := len(text), 0
		for line := range strings.Lines(text) {
			var n int
			if _, err := fmt.Sscanf(line, "[%d bytes left out]", &n); err == nil {
				lost += n
				read -= len(line) + 1
			}
		}
		if all := int(lookUp(t, d, got.ID).Bytes); lost == 0 || read+lost != all {
			t.Errorf("%d bytes were read and %d lost of %d", read, lost, all)
		}
	})
}

// A write after the task has returned is discarded.
func TestLateOutput(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := open(t, run.Config{})
		late := make(chan error, 1)
		got := wait(t, d, request("a"), task(func(_ context.Context, out io.Writer) error {
			go func() {
				time.Sleep(time.Second)
				_, err := io.WriteString(out, "late")
				late <- err
			}()
			return nil
		}))
		if err := <-late; !errors.Is(err, io.ErrClosedPipe) || got.Output != "" || lookUp(t, d, got.ID).Bytes != 0 {
			t.Errorf("got %v, %+v", err, got)
		}
	})
}

// S-47: every form of a secret is masked, wherever writes split it.
func TestSecretsAreMasked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const canary = "c4n/ry+s3cr3t"
		dir := t.TempDir()
		d := open(t, run.Config{Dir: dir})
		r := request("curl -u me:" + canary + " http://u:p4ssw0rd@h/?q=hidden\n\tand more")
		r.Secrets = []string{canary}
		for name, value := range map[string]string{
			"passwd": "cGx4", "password": "plain", "token": "plain", "env.API_TOKEN": "plain", "my_secret_thing": "plain", "apiKey": "plain", "SSH_KEY": "plain",
			"apiKeyPath": "/keys/of/it", "env_vars": `{"USER":"jack","PASSWORD":"plain"}`, "server": "http://h/" + canary, "empty": "", canary: "as key",
			"pem": "-----BEGIN PRIVATE KEY-----\nplain\n-----END PRIVATE KEY-----\n",
		} {
			r.Metadata[name] = value
		}
		var texts []string
		see := func(name, text string) {
			if texts = append(texts, text); strings.Contains(text, "c4n") || strings.Contains(text, "s3cr3t") || strings.Contains(text, "p4ss") || strings.Contains(text, "hidden") || strings.Contains(text, "plain") {
				t.Errorf("%s: leaks in %q", name, text)
			}
		}
		live := make(chan string, 1)
		loud := task(func(_ context.Context, out io.Writer) error {
			time.Sleep(time.Second)
			for i := range len(canary) {
				for _, piece := range []string{"begin ", canary[:i], canary[i:], " end\n"} {
					io.WriteString(out, piece)
					time.Sleep(time.Millisecond)
				}
			}
			return errors.New("exit status 1, said " + canary)
		})
		got := start(t, d, r, loud)
		go func() { live <- readOutput(t, d, got.ID, true) }()
		got = wait(t, d, r, loud)
		text, _ := json.Marshal(got)
		see("record", string(text))
		see("live", <-live)
		if want := strings.Repeat("begin *** end\n", len(canary)); got.Output != want || texts[1] != want {
			t.Errorf("got %q and %q", got.Output, texts[1])
		}
		shutdown(t, d)
		got = lookUp(t, open(t, run.Config{Dir: dir}), got.ID)
		text, _ = json.Marshal(got)
		see("history", string(text))
		m := got.Metadata
		if m["apiKeyPath"] != "/keys/of/it" || m["env_vars"] != `{"PASSWORD":"***","USER":"jack"}` || m["empty"] != "" || m["token"] != "***" || m["***"] != "as key" ||
			m["cmd"] != "curl -u me:*** http://h/?q=***\n and more" || m["server"] != "http://h/***" {
			t.Errorf("got %q", m)
		}
	})
}

// A record is small however large its request is.
func TestRecordIsBounded(t *testing.T) {
	d := open(t, run.Config{})
	long := strings.Repeat("long ", 100_000)
	r := run.Request{Namespace: long, Name: long, Phase: long, Checksum: long, Type: "bash", Actor: long, Metadata: map[string]string{"script": long, long: "x"}}
	for i := range 100 {
		r.Metadata[fmt.Sprintf("m%03d", i)] = strings.Repeat("x", 1000)
	}
	got := wait(t, d, r, task(func(context.Context, io.Writer) error { return errors.New(long) }))
	if text, _ := json.Marshal(got); len(text) > 32<<10 || !utf8.ValidString(got.Name) || len(got.Metadata) < 10 {
		t.Errorf("%d bytes", len(text))
	}
	names := run.Request{Namespace: long[:512], Name: long[1:513]}
	if got := wait(t, d, names, &countingTask{}); got.Namespace != names.Namespace || got.Name != names.Name {
		t.Errorf("got %q of %q", got.Name, got.Namespace)
	}
}
