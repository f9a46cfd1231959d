package source

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
)

// Validate checks an object against the admission rules of an API server
// (reference, section 0) and those that keep an object from working at all:
// expressions that do not compile, names that git or a registry would refuse.
// The error joins one *DocumentError for each defect. Validate changes
// nothing; call [Default] first for an object made in Go.
func Validate(obj Object) error {
	return errors.Join(check(obj).Of(obj.Head().String())...)
}

// check returns what is wrong with obj.
func check(obj Object) *document.Findings {
	found := new(document.Findings)
	checkMetadata(&obj.Head().Metadata, found)
	if k := objectKind(obj); k != nil {
		for _, facts := range tables[k.name] {
			rules := new(document.Findings)
			rules.Examine(obj, facts)
			found.Adopt(rules)
		}
	}
	return found
}

const maxAnnotations = 256 << 10 // bytes of all keys and values

func checkMetadata(m *Metadata, found *document.Findings) {
	if m.Name == "" && m.GenerateName != "" {
		found.Add("metadata.name", "is required: generateName needs an API server")
	} else {
		found.Check("metadata.name", document.CheckName(m.Name))
	}
	found.Check("metadata.namespace", document.CheckNamespace(m.space()))
	for _, key := range slices.Sorted(maps.Keys(m.Labels)) {
		field, v := "metadata.labels["+key+"]", m.Labels[key]
		if err := checkKey(key); err != nil {
			found.Check(field, err)
		} else if !labelForm().MatchString(v) {
			found.Add(field, "%s is no label value: write at most 63 letters, digits, '-', '_' and '.'", quote(v))
		}
	}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(m.Annotations)) {
		size += len(key) + len(m.Annotations[key])
		found.Check("metadata.annotations["+key+"]", checkKey(strings.ToLower(key)))
	}
	found.AddIf(size > maxAnnotations, "metadata.annotations", "must hold at most %d KiB", maxAnnotations>>10)
}

// qualified is the form of labels, and of the names of labels and annotations.
const qualified = `[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?`

const (
	labelPattern = "^(" + qualified + ")?$"
	keyPattern   = "^((" + document.DNSName + ")/)?" + qualified + "$"
)

var labelForm, keyForm = compiled(labelPattern), compiled(keyPattern)

// checkKey checks a key of labels or annotations: [PREFIX/]NAME.
func checkKey(key string) error {
	if prefix, _, _ := strings.Cut(key, "/"); len(prefix) > 253 || !keyForm().MatchString(key) {
		return errors.New("the key must be [PREFIX/]NAME: a DNS name, and at most 63 letters, digits, '-', '_' and '.'")
	}
	return nil
}

// metadataFacts say to schemas what checkMetadata checks.
var metadataFacts = []document.Fact{
	{At: "metadata.name", Must: musts{{Required: true}, {Schema: objectName.Schema}}},
	{At: "metadata.namespace", Must: musts{{Schema: keywords{"pattern": "^(" + document.DNSLabel + ")?$", "maxLength": 63}}}},
	{At: "metadata.labels", Must: musts{{Schema: keywords{"propertyNames": keywords{"pattern": keyPattern}}}}},
	{At: "metadata.labels[]", Must: musts{{Schema: keywords{"pattern": labelPattern}}}},
	{At: "metadata.annotations", Must: musts{{Schema: keywords{"propertyNames": keywords{"pattern": strings.ReplaceAll(keyPattern, "[a-z0-9]", "[A-Za-z0-9]")}}}}},
}
