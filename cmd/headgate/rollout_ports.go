package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	cmdline "github.com/headgate-io/headgate/internal/command"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// adapterFlags say what does the operations of traffic and target.
type adapterFlags struct {
	exec        []string
	request     []string
	headers     []string
	bodies      []string
	tokenFile   string
	execTimeout time.Duration
}

func (f *adapterFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringArrayVar(&f.exec, "exec", nil, "`OPERATION=COMMAND` that does it, a template of a program and its arguments; repeatable")
	fl.StringArrayVar(&f.request, "request", nil, "`OPERATION=[METHOD ]URL` that does it, a template; repeatable")
	fl.StringArrayVar(&f.bodies, "request-body", nil, "`OPERATION=TEXT` of the body of its request, a template; repeatable")
	fl.StringArrayVar(&f.headers, "request-header", nil, "`NAME: VALUE` of all requests, a template; repeatable")
	fl.StringVar(&f.tokenFile, "request-token-file", "", "`FILE` of a bearer token of all requests, which then go to one origin")
	spanVar(c, &f.execTimeout, "operation-timeout", 0, "bound of one operation; default 1m for commands, 30s for requests")
}

// has reports whether an operation is given.
func (f *adapterFlags) has(op traffic.Operation) bool {
	return slices.ContainsFunc(slices.Concat(f.exec, f.request), func(text string) bool {
		name, _, _ := strings.Cut(text, "=")
		return name == string(op)
	})
}

// driver returns what does the operations; it does none when none is given.
func (f *adapterFlags) driver() (traffic.Driver, error) {
	e := &traffic.Exec{Commands: map[traffic.Operation][]string{}, Env: commandEnv(), Timeout: f.execTimeout}
	h := &traffic.HTTP{Requests: map[traffic.Operation]traffic.Request{}, Timeout: f.execTimeout, Transport: http.DefaultTransport}
	commands, err1 := operations("exec", f.exec)
	requests, err2 := operations("request", f.request)
	bodies, err3 := operations("request-body", f.bodies)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	for op, line := range commands {
		words, err := cmdline.Words(line)
		if err != nil {
			return nil, usage("--exec %s: %w", op, err)
		}
		e.Commands[op] = words
	}
	header, err := f.header()
	if err != nil {
		return nil, err
	}
	if err := f.bound(requests); err != nil {
		return nil, err
	}
	for op, text := range requests {
		if _, both := commands[op]; both {
			return nil, usage("operation %s: --exec and --request exclude each other", op)
		}
		method, url := splitRequest(text)
		h.Requests[op] = traffic.Request{Method: method, URL: url, Header: header, Body: bodies[op]}
		delete(bodies, op)
	}
	for op := range bodies {
		return nil, usage("--request-body %s: there is no --request for it", op)
	}
	both := drivers{e, h}
	if err := both.Check(); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return both, nil
}

// splitRequest splits [METHOD ]URL. Templates in the URL may have spaces.
func splitRequest(text string) (method, url string) {
	method, url, found := strings.Cut(text, " ")
	if !found || strings.ContainsAny(method, ":/{") {
		return "", text
	}
	return method, strings.TrimSpace(url)
}

// bound refuses credentials for requests to several origins: they are for one.
func (f *adapterFlags) bound(requests map[traffic.Operation]string) error {
	flag := ""
	for _, text := range f.headers {
		name, _, _ := strings.Cut(text, ":")
		if name = http.CanonicalHeaderKey(strings.TrimSpace(name)); slices.Contains([]string{"Authorization", "Proxy-Authorization", "Cookie"}, name) {
			flag = "--request-header " + name
		}
	}
	if f.tokenFile != "" {
		flag = "--request-token-file"
	}
	if flag == "" {
		return nil
	}
	origins := map[string]bool{}
	for _, text := range requests {
		_, url := splitRequest(text)
		parts := strings.SplitN(url, "/", 4) // scheme, nothing, and who is asked
		origin := strings.ToLower(strings.Join(parts[:min(3, len(parts))], "/"))
		origin, _, _ = strings.Cut(origin, "?")
		if strings.Contains(origin, "{{") {
			return usage("%s: it is for one origin, and that of a --request is a template", flag)
		}
		origins[origin] = true
	}
	if len(origins) > 1 {
		return usage("%s: it is for one origin, and each --request gets it: theirs are several; use --exec for the others", flag)
	}
	return nil
}

// header is that of all requests.
func (f *adapterFlags) header() (map[string]string, error) {
	header := map[string]string{}
	for _, text := range f.headers {
		name, value, found := strings.Cut(text, ":")
		if !found || strings.TrimSpace(name) == "" {
			return nil, usage("--request-header: want NAME: VALUE")
		}
		header[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	token := map[string][]byte{}
	if err := readKeys(token, []keyFile{{"request-token-file", f.tokenFile, "token", true}}); err != nil {
		return nil, err
	}
	if text := string(token["token"]); text != "" {
		if strings.Contains(text, "{{") {
			return nil, usage("--request-token-file: the token is a template")
		}
		header["Authorization"] = "Bearer " + text
	}
	return header, nil
}

// operations parses the values OPERATION=TEXT of a flag.
func operations(flag string, values []string) (map[traffic.Operation]string, error) {
	all := map[traffic.Operation]string{}
	for _, value := range values {
		name, text, found := strings.Cut(value, "=")
		op := traffic.Operation(name)
		switch _, twice := all[op]; {
		case !found || !slices.Contains(traffic.Operations(), op):
			return nil, usage("--%s: want OPERATION=…, where OPERATION is one of %s", flag, operationNames())
		case strings.TrimSpace(text) == "":
			return nil, usage("--%s %s: is empty", flag, op)
		case twice:
			return nil, usage("--%s %s: is given twice", flag, op)
		}
		all[op] = text
	}
	return all, nil
}

func operationNames() string {
	var names []string
	for _, op := range traffic.Operations() {
		names = append(names, string(op))
	}
	return strings.Join(names, ", ")
}

// commandEnv is the environment of commands: all but the Secrets in it.
func commandEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "HEADGATE_SECRET_") })
}

// drivers do the operations that one of them has.
type drivers []traffic.Driver

func (d drivers) find(op traffic.Operation) traffic.Driver {
	i := slices.IndexFunc(d, func(driver traffic.Driver) bool { return driver.Has(op) })
	if i < 0 {
		return nil
	}
	return d[i]
}

func (d drivers) Has(op traffic.Operation) bool { return d.find(op) != nil }

func (d drivers) Do(ctx context.Context, op traffic.Operation, v traffic.Values) (string, error) {
	return d.find(op).Do(ctx, op, v)
}

func (d drivers) Check() error {
	var errs []error
	for _, driver := range d {
		errs = append(errs, driver.Check())
	}
	return errors.Join(errs...)
}
