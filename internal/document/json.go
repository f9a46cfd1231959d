package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A jsonReader reads a sequence of JSON values as nodes.
type jsonReader struct {
	text []byte
	dec  *json.Decoder
	line int // line that offset is on
	at   int // offset that line was counted to
	budget
}

func newJSONReader(text []byte, line int) *jsonReader {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return &jsonReader{text: text, dec: dec, line: line}
}

// next returns the next value, io.EOF after the last.
func (r *jsonReader) next() (*Node, error) {
	r.budget = budget{}
	tok, err := r.dec.Token()
	if err != nil {
		return nil, r.explain(err)
	}
	n, err := r.value(tok)
	if err != nil {
		return nil, r.explain(err)
	}
	return n, nil
}

// explain adds the line to an error of the JSON syntax.
func (r *jsonReader) explain(err error) error {
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, errTooDeep) || errors.Is(err, errTooLarge):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("the text ends inside a value")
	}
	return &lineError{r.here(), fmt.Errorf("%w: %w", errNotJSON, err)}
}

// here returns the line of the token just read.
func (r *jsonReader) here() int {
	end := min(int(r.dec.InputOffset()), len(r.text))
	r.line += bytes.Count(r.text[r.at:end], []byte("\n"))
	r.at = end
	return r.line
}

func (r *jsonReader) value(tok json.Token) (*Node, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.leave()
	n := &Node{Line: r.here()}
	switch tok := tok.(type) {
	case nil:
	case bool:
		n.Kind, n.Text = Bool, fmt.Sprint(tok)
	case json.Number:
		n.Kind, n.Text = Number, tok.String()
	case string:
		n.Kind, n.Text = Text, tok
	case json.Delim:
		if tok == '[' {
			n.Kind = List
			return n, r.list(n)
		}
		n.Kind = Map
		return n, r.mapping(n)
	}
	return n, nil
}

func (r *jsonReader) list(n *Node) error {
	for {
		tok, err := r.inner()
		if err != nil || tok == json.Delim(']') {
			return err
		}
		item, err := r.value(tok)
		if err != nil {
			return err
		}
		n.Items = append(n.Items, item)
	}
}

func (r *jsonReader) mapping(n *Node) error {
	for {
		tok, err := r.inner()
		if err != nil || tok == json.Delim('}') {
			return err
		}
		name, line := fmt.Sprint(tok), r.here()
		if tok, err = r.inner(); err != nil {
			return err
		}
		v, err := r.value(tok)
		if err != nil {
			return err
		}
		n.Fields = append(n.Fields, Field{name, line, v})
	}
}

// inner reads a token inside a value, where the text must not end.
func (r *jsonReader) inner() (json.Token, error) {
	tok, err := r.dec.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return tok, err
}

// ReadJSON reads one JSON value, such as a Go value was encoded as.
func ReadJSON(text []byte) (*Node, error) { return newJSONReader(text, 1).next() }
