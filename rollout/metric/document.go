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
	"regexp"
	"strconv"
	"strings"
)

// queryHTTP fetches a document from an HTTP endpoint and returns the number in it.
func (q *Querier) queryHTTP(ctx context.Context, e endpoint, v values) (float64, error) {
	u, err := addressOf(e, v)
	if err != nil {
		return 0, fmt.Errorf("spec.provider.address %w", err)
	}
	var at path
	text, err := render(e.query, v, verbatim)
	if err == nil {
		at, err = parsePath(text)
	}
	if err != nil {
		return 0, fmt.Errorf("spec.query: %w", err)
	}
	a, err := q.fetch(ctx, e, u)
	if err != nil {
		return 0, err
	}
	if a.Status != http.StatusOK {
		return 0, a.statusError()
	}
	value, err := at.number(a.Body)
	return value, a.redactError(err)
}

// addressOf returns the URL of an endpoint with its placeholders filled in. It
// refuses dot segments, even between escaped slashes, because servers resolve them.
func addressOf(e endpoint, v values) (*url.URL, error) {
	text, err := render(e.Address, v, func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") })
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

// A path selects a value in a JSON document: .key is a field of an object, ["key"]
// a field whose name has characters other than letters, digits, _ and -, and [0] an
// item of a list. The empty path selects the document.
type path []step

type step struct {
	key  any    // string or int
	text string // the path up to and including this step
}

var stepForm = regexp.MustCompile(`^(?:\.([\w-]+)|\[([0-9]{1,9})\]|\[("(?:[^"\\]|\\.)*")\])`)

// parsePath parses a path. The leading dot is optional; "." alone is the empty path.
func parsePath(text string) (path, error) {
	text = strings.TrimSpace(text)
	if text == "." || text == "" {
		return nil, nil
	}
	if text[0] != '.' && text[0] != '[' {
		text = "." + text
	}
	var p path
	for at := 0; at < len(text); {
		found, err := stepForm.FindStringSubmatch(text[at:]), error(nil)
		if found == nil {
			return nil, fmt.Errorf(`is no path at %s: write it as .data.items[0].value, or a name of other characters as ["a b"]`, strconv.Quote(text[at:]))
		}
		at += len(found[0])
		s := step{found[1], text[:at]}
		switch {
		case found[2] != "":
			s.key, err = strconv.Atoi(found[2])
		case found[3] != "":
			s.key, err = strconv.Unquote(found[3])
		}
		if err != nil {
			return nil, fmt.Errorf("is no path: %s: %w", s.text, err)
		}
		p = append(p, s)
	}
	return p, nil
}

// checkPath validates the query of a provider of type http. It does not parse a path
// with placeholders, since their values are not known yet.
func checkPath(text string) error {
	if err := parseQuery(text); err != nil || strings.Contains(text, "{{") {
		return err
	}
	_, err := parsePath(text)
	return err
}

// number returns the number at p in the text of a document. The error is a noValueError
// for null and for an item beyond the end of its list. A missing field is another
// error.
func (p path) number(text []byte) (float64, error) {
	if len(p) == 0 && !json.Valid(text) { // such as NaN and +Inf
		return parseNumber(strings.TrimSpace(string(text)))
	}
	var value any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return 0, errors.New("the answer is no JSON document")
	}
	if _, err := d.Token(); err != io.EOF {
		return 0, errors.New("the answer is more than one JSON document")
	}
	at := "."
	for _, s := range p {
		list, isList := value.([]any)
		object, isObject := value.(map[string]any)
		i, indexed := s.key.(int)
		switch {
		case value == nil:
		case indexed && !isList:
			return 0, fmt.Errorf("there is %s at %s, not a list", jsonKind(value), at)
		case indexed && i < len(list):
			value = list[i]
		case indexed:
			value = nil
		case !isObject:
			return 0, fmt.Errorf("there is %s at %s, not an object", jsonKind(value), at)
		default:
			found := false
			if value, found = object[s.key.(string)]; !found {
				return 0, fmt.Errorf("there is no %s in the answer", s.text)
			}
		}
		at = s.text
	}
	switch value := value.(type) {
	case json.Number:
		return parseNumber(value.String())
	case string:
		return parseNumber(strings.TrimSpace(value))
	case nil:
		return 0, noValueError("answered nothing at " + at)
	}
	return 0, fmt.Errorf("there is %s at %s, not a number", jsonKind(value), at)
}

// jsonKind names the kind of a JSON value.
func jsonKind(v any) string {
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
