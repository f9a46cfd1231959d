package index

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-io/headgate/chart/internal/yaml"
)

// entrySize limits an entry, in bytes of its texts and 16 for each of them.
const entrySize = 1 << 20

// entry returns the entry that the record is, of the chart with that name, and
// the first thing that makes it useless.
func (r *record) entry(chart []byte) (e Entry, problem error) {
	e = Entry{Name: string(chart), Line: r.nodes[0].line}
	switch {
	case r.big:
		return e, fmt.Errorf("it is larger than %d bytes", entrySize)
	case r.null(0):
		return e, errors.New("it is null")
	case r.nodes[0].kind != yaml.MapStart:
		return e, errors.New("it is no mapping")
	}
	name := ""
	pairs := r.mapping(0)
	for i, p := range pairs {
		key := r.value(p.key)
		var err error
		switch {
		case i > 0 && bytes.Equal(key, r.value(pairs[i-1].key)):
			err = errors.New("is there twice")
		case string(key) == "name":
			name, err = r.scalar(p.value)
		default:
			err = r.field(&e, key, p.value)
		}
		if err != nil && problem == nil { // the first is enough: there may be thousands
			problem = fmt.Errorf("field %s %w", quote(key), err)
		}
	}
	r.pairs = r.pairs[:0]
	if problem == nil {
		problem = e.problem(name)
	}
	return e, problem
}

// field takes over a field of an entry. Fields that nobody needs here may be
// anything.
func (r *record) field(e *Entry, key []byte, value int) (err error) {
	switch string(key) {
	case "version":
		e.Version, err = r.scalar(value)
	case "appVersion":
		e.AppVersion, err = r.scalar(value)
	case "description":
		e.Description, err = r.scalar(value)
	case "type":
		e.Type, err = r.scalar(value)
	case "digest":
		e.Digest, err = r.scalar(value)
	case "deprecated":
		var text string
		text, err = r.scalar(value)
		e.Deprecated = strings.EqualFold(text, "true")
	case "created":
		var text string
		text, err = r.scalar(value)
		e.Created = parseTime(text)
	case "urls":
		e.URLs, err = r.list(value)
	case "maintainers", "dependencies":
		err = r.mappings(value)
	}
	return err
}

// scalar returns a text, "" for null.
func (r *record) scalar(n int) (string, error) {
	switch {
	case r.null(n):
		return "", nil
	case r.nodes[n].kind != yaml.Scalar:
		return "", errors.New("must be a text")
	}
	return string(r.value(n)), nil
}

// list returns a list of texts, without those that are empty.
func (r *record) list(n int) (all []string, err error) {
	switch {
	case r.null(n):
		return nil, nil
	case r.nodes[n].kind != yaml.SeqStart:
		return nil, errors.New("must be a list")
	}
	for i := range r.elements(n) {
		text, err := r.scalar(i)
		if err != nil {
			return nil, err
		}
		if text != "" {
			all = append(all, text)
		}
	}
	return all, nil
}

// mappings says whether a node is a list of mappings, if it is there at all.
func (r *record) mappings(n int) error {
	switch {
	case r.null(n):
		return nil
	case r.nodes[n].kind != yaml.SeqStart:
		return errors.New("must be a list")
	}
	for i := range r.elements(n) {
		if r.nodes[i].kind != yaml.MapStart {
			return errors.New("must have mappings in it")
		}
	}
	return nil
}

// timeLayouts are the spellings of times in YAML, beside that of JSON.
var timeLayouts = []string{time.RFC3339Nano, "2006-01-02t15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999 Z07:00", "2006-01-02 15:04:05.999999999", time.DateOnly}

// parseTime returns the time that text is, zero when it is none.
func parseTime(text string) time.Time {
	for _, layout := range timeLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t
		}
	}
	return time.Time{}
}

// problem says why nobody can use the entry, which calls itself name.
func (e *Entry) problem(name string) error {
	switch {
	case name == "":
		return errors.New("name is missing")
	case name != e.Name:
		return fmt.Errorf("its name is %s, not that of the list it is in", quote([]byte(name)))
	case !allowed(name):
		return fmt.Errorf("name %s is not allowed", quote([]byte(name)))
	case e.Version == "":
		return errors.New("version is missing")
	case e.Type != "" && e.Type != "application" && e.Type != "library":
		return fmt.Errorf("type %s is neither application nor library", quote([]byte(e.Type)))
	case len(e.URLs) == 0:
		return errors.New("urls is empty")
	case e.Digest != "" && !isSHA256(e.Digest):
		return fmt.Errorf("digest %s is no sha256", quote([]byte(e.Digest)))
	}
	if _, err := parseVersion(e.Version); err != nil {
		return fmt.Errorf("version %s: %w", quote([]byte(e.Version)), err)
	}
	return nil
}

// allowed tells whether a chart may have the name.
func allowed(name string) bool {
	return name != "." && !strings.Contains(name, "..") && !strings.ContainsAny(name, `/\`) && !strings.ContainsFunc(name, unicode.IsControl) && utf8.ValidString(name)
}

// isSHA256 tells whether text is HEX or sha256:HEX.
func isSHA256(text string) bool {
	digest := strings.TrimPrefix(text, "sha256:")
	return len(digest) == 64 && strings.Trim(digest, "0123456789abcdefABCDEF") == ""
}

// quote makes text of an index fit for a message.
func quote(text []byte) string { return strconv.Quote(cut(text)) }

// cut returns the first 100 bytes of text.
func cut(text []byte) string {
	if len(text) > 100 {
		return string(text[:100]) + "…"
	}
	return string(text)
}
