package testenv

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
)

// Golden runs a subtest for each archive that matches pattern. do receives the
// files of the archive except those called want.*, and returns the want.* files with
// the content that they must have, in order; the archive omits empty ones. A file
// whose name begins with "../" is read from that path, relative to the package, and
// do receives it under its base name. With update, Golden rewrites the archives
// instead of comparing.
func Golden(t *testing.T, pattern string, update bool, do func(t *testing.T, input []txtar.File) []txtar.File) {
	t.Helper()
	archives, err := filepath.Glob(pattern)
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, name := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			Must(t, err)
			want := map[string]string{}
			var files []txtar.File
			for _, f := range archive.Files {
				if strings.HasPrefix(f.Name, "want.") {
					want[f.Name] = string(f.Data)
				} else {
					files = append(files, f)
				}
			}
			for _, got := range do(t, load(t, files)) {
				if string(got.Data) != want[got.Name] && !update {
					t.Errorf("%s:\n%s\nwant:\n%s", got.Name, got.Data, want[got.Name])
				}
				if len(got.Data) > 0 {
					files = append(files, got)
				}
				delete(want, got.Name)
			}
			if update {
				Must(t, os.WriteFile(name, txtar.Format(&txtar.Archive{Comment: archive.Comment, Files: files}), 0o644))
			} else if len(want) > 0 {
				t.Errorf("%s has files that nothing makes: %q", name, want)
			}
		})
	}
}

// load returns files with those whose names begin with "../" read from that path.
func load(t *testing.T, files []txtar.File) []txtar.File {
	files = slices.Clone(files)
	for i, f := range files {
		if strings.HasPrefix(f.Name, "../") {
			data, err := os.ReadFile(f.Name)
			Must(t, err)
			files[i] = txtar.File{Name: path.Base(f.Name), Data: data}
		}
	}
	return files
}

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Equal fails the test if got differs from want; an empty slice or map equals a nil
// one. The failure message begins with about: a value, or a format and its arguments.
func Equal[T any](t testing.TB, got, want T, about ...any) {
	t.Helper()
	verb := "%+v"
	switch v := any(got).(type) {
	case string:
		if verb = "%q"; strings.Contains(v, "\n") {
			verb = "\n%s\n"
		}
	case []string:
		verb = "%q"
	}
	if v := reflect.ValueOf(got); v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		if v.Len()+reflect.ValueOf(want).Len() == 0 {
			return
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s"+verb+", want "+verb, label(about), got, want)
	}
}

// ErrorIs fails the test unless [errors.Is] reports true for err and want. about is
// as in [Equal].
func ErrorIs(t testing.TB, err, want error, about ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%serror %v, want %v", label(about), err, want)
	}
}

// ErrorSays fails the test if err is nil or its text does not contain want. about is
// as in [Equal].
func ErrorSays(t testing.TB, err error, want string, about ...any) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%serror %v, want one that says %q", label(about), err, want)
	}
}

// label returns the beginning of a failure message.
func label(about []any) string {
	switch len(about) {
	case 0:
		return ""
	case 1:
		return fmt.Sprint(about[0]) + ": "
	}
	return fmt.Sprintf(about[0].(string), about[1:]...) + ": "
}

// An Exchange is a request as it is sent over the wire, and the answer that is
// expected.
type Exchange struct {
	Name      string
	Position  string // FILE:LINE
	Reference bool   // the reference implementation answers the same

	Method, Target string
	Header         []string // lines of the form NAME: VALUE
	Body           []byte

	Status  int
	Headers map[string]string // headers of the answer; "-" means that it has no such header
	Answer  string            // body of the answer
	Pattern *regexp.Regexp    // expression that the whole body matches, instead of Answer
}

// Exchanges reads a file of exchanges:
//
//	== NAME               begins an exchange; == NAME (reference) if the reference implementation answers the same
//	> METHOD TARGET       the request; more lines with > are its headers
//	body                  lines up to the answer; = "…" is text in Go's quotes, % N is N spaces, both without a line break
//	< STATUS              the answer; more lines with < are headers that it must have
//	body                  the exact body, or ~ EXPRESSION, a regular expression that matches all of it
//
// Lines that begin with # are comments. Empty lines at the end of a body are ignored.
func Exchanges(file string) ([]Exchange, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []Exchange
	for i, line := range strings.Split(string(text), "\n") {
		position := fmt.Sprintf("%s:%d", file, i+1)
		if name, begins := strings.CutPrefix(line, "== "); begins {
			name, reference := strings.CutSuffix(name, " (reference)")
			all = append(all, Exchange{Name: name, Position: position, Reference: reference, Headers: map[string]string{}})
			continue
		}
		if strings.HasPrefix(line, "#") || len(all) == 0 {
			continue
		}
		if err := all[len(all)-1].read(line); err != nil {
			return nil, fmt.Errorf("%s: %w", position, err)
		}
	}
	for i := range all {
		all[i].Body = bytes.TrimRight(all[i].Body, "\n")
		all[i].Answer = strings.TrimRight(all[i].Answer, "\n")
	}
	return all, nil
}

// read parses one line of an exchange.
func (x *Exchange) read(line string) (err error) {
	request, isRequest := strings.CutPrefix(line, "> ")
	answer, isAnswer := strings.CutPrefix(line, "< ")
	switch {
	case isRequest && x.Method == "":
		x.Method, x.Target, _ = strings.Cut(request, " ")
	case isRequest:
		x.Header = append(x.Header, request)
	case isAnswer && x.Status == 0:
		x.Status, err = strconv.Atoi(answer)
	case isAnswer:
		name, value, _ := strings.Cut(answer, ": ")
		x.Headers[name] = value
	case x.Status == 0:
		var body []byte
		body, err = bodyLine(line)
		x.Body = append(x.Body, body...)
	case strings.HasPrefix(line, "~ "):
		x.Pattern, err = regexp.Compile(`\A(?:` + line[2:] + `)\z`)
	default:
		x.Answer += line + "\n"
	}
	return err
}

// bodyLine returns the part of a request body that a line of a file describes.
func bodyLine(line string) ([]byte, error) {
	if quoted, is := strings.CutPrefix(line, "= "); is {
		unquoted, err := strconv.Unquote(quoted)
		return []byte(unquoted), err
	}
	if number, is := strings.CutPrefix(line, "% "); is {
		n, err := strconv.Atoi(number)
		return bytes.Repeat([]byte(" "), n), err
	}
	return []byte(line + "\n"), nil
}

// Do sends the request to address, HOST:PORT, over a connection of its own. It
// returns an error if the answer differs from the expected one. Its timeout is a minute.
func (x *Exchange) Do(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	var head strings.Builder
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", x.Method, x.Target, address)
	if len(x.Body) > 0 || x.Method == http.MethodPost {
		fmt.Fprintf(&head, "Content-Length: %d\r\n", len(x.Body))
	}
	for _, line := range x.Header {
		head.WriteString(line + "\r\n")
	}
	go func() { // the server may answer and close the connection before it has read everything
		io.WriteString(conn, head.String()+"\r\n")
		conn.Write(x.Body)
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: x.Method})
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil && len(body) == 0 {
		return fmt.Errorf("status %d, then its body: %w", resp.StatusCode, err)
	}
	return x.compare(resp, string(body))
}

func (x *Exchange) compare(resp *http.Response, body string) error {
	if resp.StatusCode != x.Status {
		return fmt.Errorf("status %d %q, want %d", resp.StatusCode, body, x.Status)
	}
	for name, want := range x.Headers {
		values, present := resp.Header[http.CanonicalHeaderKey(name)]
		got := strings.Join(values, ", ")
		if want == "-" && present || want != "-" && got != want {
			return fmt.Errorf("header %s: %q, want %q", name, got, want)
		}
	}
	if x.Pattern != nil && !x.Pattern.MatchString(body) {
		return fmt.Errorf("body %q, want %s", body, x.Pattern)
	}
	if body = strings.TrimRight(body, "\n"); x.Pattern == nil && body != x.Answer {
		return fmt.Errorf("body %q, want %q", body, x.Answer)
	}
	return nil
}
