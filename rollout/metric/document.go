package metric

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// document asks an HTTP endpoint for a document and returns the number in it.
func (q *Querier) document(ctx context.Context, e endpoint, v values) (float64, error) {
	u, err := addressOf(e, v)
	if err != nil {
		return 0, fmt.Errorf("spec.provider.address %w", err)
	}
	text, err := render(e.query, v, verbatim)
	if err != nil {
		return 0, fmt.Errorf("spec.query: %w", err)
	}
	at, err := parsePath(text)
	if err != nil {
		return 0, fmt.Errorf("spec.query %w", err)
	}
	a, err := q.fetch(ctx, e, u)
	if err != nil {
		return 0, err
	}
	if a.status != http.StatusOK {
		return 0, fmt.Errorf("status %d: %s", a.status, a.complaint())
	}
	value, err := at.number(a.body)
	return value, a.quiet(err)
}

// addressOf returns the URL of an endpoint with its placeholders filled in. Dot
// segments are refused, also where their slashes are escaped: servers take them away.
func addressOf(e endpoint, v values) (*url.URL, error) {
	text, err := render(e.Address, v, inURL)
	if err != nil {
		return nil, err
	}
	u, err := parseAddress(text)
	if err != nil {
		return nil, err
	}
	for _, segment := range strings.FieldsFunc(u.Path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if segment == "." || segment == ".." {
			return nil, fmt.Errorf("has the path segment %s", segment)
		}
	}
	return u, nil
}

// inURL escapes a value for the path and the query of a URL.
func inURL(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// number returns the number at p in the text of a document.
func (p path) number(text []byte) (float64, error) {
	if len(p) == 0 && !json.Valid(text) { // such as NaN and +Inf
		return parseNumber(strings.TrimSpace(string(text)))
	}
	var doc any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&doc); err != nil {
		return 0, errors.New("the answer is no JSON document")
	}
	if _, err := d.Token(); err != io.EOF {
		return 0, errors.New("the answer is more than one JSON document")
	}
	found, err := p.in(doc)
	if err != nil {
		return 0, err
	}
	switch found := found.(type) {
	case json.Number:
		return parseNumber(found.String())
	case string:
		return parseNumber(strings.TrimSpace(found))
	case nil:
		return 0, noValue(fmt.Sprintf("answered nothing at %s", p))
	}
	return 0, fmt.Errorf("there is %s at %s, not a number", kindOf(found), p)
}

// kindOf names the kind of a JSON value.
func kindOf(v any) string {
	switch v.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case bool:
		return "a boolean"
	}
	return "a value"
}
