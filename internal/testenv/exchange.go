package testenv

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

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
