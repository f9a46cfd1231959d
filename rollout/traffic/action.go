package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"text/template"

	"github.com/headgate-io/headgate/internal/command"
	"github.com/headgate-io/headgate/internal/notify"
	"github.com/headgate-io/headgate/internal/placeholder"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
)

// maxText is the maximum length of the result of a template and of an answer, in bytes.
const maxText = placeholder.Max

// templates is the template language of actions, over [Values]. Its functions replace
// the builtin ones whose results have no limit.
var templates = placeholder.Language{
	Name: "these templates", Hint: "there are the fields of Values, if, comparisons, json, js, html, urlquery and print", Fields: true,
	Builtin: []string{"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "index", "slice"},
	Functions: template.FuncMap{
		"json": func(v any) (string, error) {
			text, err := json.Marshal(v)
			if err != nil {
				return "", err
			}
			return limitLength(fmt.Sprint)(string(text))
		},
		"js":       limitLength(template.JSEscaper),
		"html":     limitLength(template.HTMLEscaper),
		"urlquery": limitLength(template.URLQueryEscaper),
		"print":    limitLength(fmt.Sprint),
		"println":  limitLength(fmt.Sprintln),
	},
}

func limitLength(f func(...any) string) func(...any) (string, error) {
	return func(args ...any) (string, error) {
		s := f(args...)
		if len(s) > maxText {
			return "", placeholder.ErrTooLong
		}
		return s, nil
	}
}

func expand(text string, v any) (string, error) { return templates.Expand(text, v, nil) }

// StuckCode is the exit code of a command that reports that the workload never
// becomes ready. Any other code except zero means that it is not ready yet; tools
// that check a server use low codes for that.
const StuckCode = 100

// A Command is an [Action] that runs a command, without a shell. Its standard output
// is the answer; the end of its standard error is part of the error.
//
// The operation must be complete when the command exits. A command may leave a server
// running in the background that does not write to its output. If its time limit or
// ctx ends, the command and everything it started is killed.
type Command struct {
	Args []string // a program and its arguments, each a template over [Values]
	Env  []string // environment as KEY=VALUE, in addition to the variables of Values; programs are looked up in its PATH
}

// Do runs the command.
func (c *Command) Do(ctx context.Context, v Values) (string, error) {
	args, err := c.args(v)
	if err != nil {
		return "", err
	}
	env := append(slices.Clone(c.Env), "HEADGATE_OPERATION="+string(v.Operation), "HEADGATE_NAME="+v.Name, "HEADGATE_NAMESPACE="+v.Namespace,
		"HEADGATE_TARGET="+v.Target, "HEADGATE_SERVICE="+v.Service, "HEADGATE_PHASE="+string(v.Phase), "HEADGATE_REVISION="+v.Revision,
		fmt.Sprintf("HEADGATE_PRIMARY=%d", v.Primary), fmt.Sprintf("HEADGATE_CANARY=%d", v.Canary), fmt.Sprintf("HEADGATE_MIRRORED=%v", v.Mirrored))
	out, err := command.Command{Args: args, Env: env, Limit: maxText + 1}.Run(ctx)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && v.Operation.checksReadiness() && exit.ExitCode() == StuckCode {
		return "", fmt.Errorf("%w: %w", rollout.ErrStuck, err)
	}
	if err != nil || !v.Operation.usesAnswer() {
		return "", err
	}
	return string(out.Text), nil
}

func (c *Command) args(v Values) ([]string, error) {
	var args []string
	for i, text := range c.Args {
		arg, err := expand(text, v)
		if err != nil {
			return nil, fmt.Errorf("argument %d: %w", i, err)
		}
		args = append(args, arg)
	}
	return args, nil
}

// Check returns an error if a template cannot be executed or, for [SetRoutes], if the
// program does not exist or is not executable, unless its name is a template.
func (c *Command) Check(op Operation) error {
	args, err := c.args(Values{Operation: op})
	if err != nil || op != SetRoutes || len(args) == 0 || strings.Contains(c.Args[0], "{{") {
		return err
	}
	file, err := command.LookPath(args[0], c.Env)
	if err == nil {
		_, err = exec.LookPath(file)
	}
	if err != nil {
		return fmt.Errorf("the program cannot be started: %w", err)
	}
	return nil
}

// A Request is an [Action] that sends an HTTP request. URL, Header and Body are
// templates over [Values]. In a URL, texts are escaped so that each stays one segment
// of the path or one value of the query. A segment . or .. is an error.
//
// A status from 200 to 299 is success, and the body is the answer. For an operation
// that asks whether the workload is ready, 410 means that it never will be, and any
// other status that it is not ready yet. Redirects with 307 and 308, and those of a
// GET, are followed within the origin of the URL; any other redirect is an error that
// names its target.
type Request struct {
	Method string // default GET for operations that only read, POST for others
	URL    string
	Header map[string]string // errors do not show the values
	Body   string
}

// Do sends the request.
func (r *Request) Do(ctx context.Context, v Values) (string, error) {
	u, header, body, err := r.expand(v)
	if err != nil {
		return "", err
	}
	method := r.Method
	if method == "" {
		method = http.MethodPost
		if v.Operation.checksReadiness() || v.Operation.usesAnswer() {
			method = http.MethodGet
		}
	}
	a, err := notify.Send(ctx, http.DefaultTransport, method, u, header, []byte(body), maxText+1)
	if err == nil && (a.Status < 200 || a.Status > 299) {
		err = statusError(v.Operation, a)
	} else if err == nil && v.Operation.usesAnswer() {
		return string(a.Body), redact.Error(a.Err, notify.HeaderSecrets(header)...)
	}
	return "", redact.Error(err, notify.HeaderSecrets(header)...)
}

// expand returns the URL, header and body to send.
func (r *Request) expand(v Values) (u *url.URL, header http.Header, body string, err error) {
	at, err := expand(r.URL, v.escaped())
	if err == nil {
		u, err = notify.ParseURL(at)
	}
	if err != nil {
		return nil, nil, "", fmt.Errorf("url: %w", err)
	}
	for part := range strings.SplitSeq(u.EscapedPath(), "/") {
		if text, _ := url.PathUnescape(part); text == "." || text == ".." {
			return nil, nil, "", fmt.Errorf("url: a part of its path is %q: servers take that for another path", text)
		}
	}
	header = http.Header{}
	for name, text := range r.Header {
		value, err := expand(text, v)
		if err != nil {
			return nil, nil, "", fmt.Errorf("header %s: %w", name, err)
		}
		header.Set(name, value)
	}
	notify.SetUserInfo(u, header)
	if body, err = expand(r.Body, v); err != nil {
		return nil, nil, "", fmt.Errorf("body: %w", err)
	}
	return u, header, body, nil
}

// escaped returns v with its texts escaped for any position in a URL.
func (v Values) escaped() Values {
	for _, text := range []*string{&v.Name, &v.Namespace, &v.Target, &v.Service, &v.Revision} {
		*text = strings.ReplaceAll(url.QueryEscape(*text), "+", "%20")
	}
	return v
}

// maxReason is the maximum length of the part of a body that an error shows, in bytes.
const maxReason = 512

func statusError(op Operation, a *notify.Answer) error {
	text := fmt.Sprintf("status %d", a.Status)
	if to := a.Header.Get("Location"); to != "" && a.Status/100 == 3 {
		text += ": redirect to " + to + " refused"
	} else if body := bytes.TrimSpace(a.Body[:min(len(a.Body), maxReason)]); len(body) > 0 {
		text += ": " + string(body)
	}
	if op.checksReadiness() && a.Status == http.StatusGone {
		return fmt.Errorf("%w: %s", rollout.ErrStuck, text)
	}
	return errors.New(text)
}

// Check returns an error if a template cannot be executed or the URL is invalid.
func (r *Request) Check(op Operation) error {
	_, _, _, err := r.expand(Values{Operation: op})
	return err
}
