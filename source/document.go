package source

import (
	"strings"

	"github.com/headgate-io/headgate/internal/document"
)

// Limits of what [Set.Decode] reads.
const (
	MaxStream   = document.MaxStream   // bytes of one stream
	MaxDocument = document.MaxDocument // bytes of one document, as an API server has it
)

// A DocumentError says where an object is wrong and which rule it breaks:
//
//	File     string // name of the file, "-" for standard input; "" for an object made in Go
//	Document int    // 1-based, 0 when it is not about one document
//	Line     int    // of the file, 1-based; 0 when unknown
//	Object   string // KIND/NAMESPACE/NAME as far as known
//	Field    string // path of the field, for example spec.interval
//	Err      error  // the rule, which Unwrap returns
//
// Its text is FILE:LINE: document N: OBJECT: FIELD: RULE, without the parts
// that are not known, and with control characters replaced.
type DocumentError = document.Error

// An Other is a document that a [Set] does not hold: of another kind, or no object.
type Other = document.Other

// quote quotes a value of a document for an error, shortened to 80 bytes.
func quote(s string) string { return document.Quote(s) }

// rules returns what the table of fields says of documents of a kind in a version.
func (k *kind) rules(in versions) func(string) document.Rule {
	return func(path string) document.Rule {
		rule := document.Rule{}
		if strings.HasSuffix(path, ".timeout") {
			rule.Text = checkTimeout
		}
		row := rowOf(k.name, path)
		if row == nil {
			return rule
		}
		if row.in&in == 0 {
			rule.Refused = row.elsewhere(k)
		}
		rule.Optional = row.optional&in != 0
		rule.Shape, rule.Warning = row.shape, row.note
		return rule
	}
}

func checkTimeout(text string) error {
	_, err := document.ParseTimeout(text)
	return err
}

// objectName checks the name of an object.
func objectName(name string) error { return document.CheckName(name) }
