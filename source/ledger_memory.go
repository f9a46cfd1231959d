package source

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"reflect"

	"sigs.k8s.io/yaml"

	"github.com/headgate-io/headgate/internal/document"
)

// A memory is what a [Ledger] knows of an object. It is replaced, not changed.
type memory struct {
	document, state record

	content    sum           // of the document as compact JSON; zero when it is not known
	object     sum           // of an object that has this document; zero when none is known
	spec       sum           // of a spec that has the generation; zero when none is known
	generation int64         // of the document
	status     reflect.Value // of the document, not to be changed
	text       State         // of the state; nil when it is longer than maxKept
}

// maxKept bounds the state that a [Ledger] remembers, in bytes.
const maxKept = 1 << 10

func (l *Ledger) recall(address string) memory {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[address]
}

func (l *Ledger) remember(address string, m memory) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = make(map[string]memory)
	}
	l.known[address] = m
}

func (l *Ledger) forget(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, address)
}

// restore sets status and generation of obj, and reports whether the memory tells them.
func (m *memory) restore(obj Object) bool {
	status := statusOf(obj)
	if !m.status.IsValid() || m.status.Type() != status.Type() {
		return false
	}
	if meta := &obj.Head().Metadata; meta.Generation == 0 {
		if m.spec == (sum{}) || m.spec != specSum(obj) || m.generation == 0 {
			return false
		}
		meta.Generation = m.generation
	}
	status.Set(cloned(m.status))
	return true
}

// stateOf returns the state of an object, unless the file is another than m knows.
func (l *Ledger) stateOf(address string, m *memory) (State, bool) {
	if !l.same(address+stateFile, &m.state) {
		return nil, false
	}
	if m.text != nil || m.state.holds(nil) {
		return bytes.Clone(m.text), true
	}
	root, err := l.open()
	if root == nil || err != nil {
		return nil, false
	}
	defer root.Close()
	state, err := m.readState(root, address)
	return state, err == nil
}

// readState reads the state, which may be none.
func (m *memory) readState(root *os.Root, address string) (State, error) {
	safe, stamp := m.state.safe, m.state.stamp
	state, err := m.state.read(root, address+stateFile)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	m.state.safe = safe && stamp == m.state.stamp
	m.keep(state)
	return state, err
}

func (m *memory) keep(state State) {
	if m.text = nil; len(state) <= maxKept {
		m.text = bytes.Clone(state)
	}
}

// learn takes note of an object that was saved.
func (m *memory) learn(obj Object, object sum, state State) {
	m.object, m.spec, m.generation = object, specSum(obj), obj.Head().Metadata.Generation
	m.status = cloned(statusOf(obj))
	m.keep(state)
}

// decode fills in status and generation of obj from the saved document.
func (m *memory) decode(obj Object, text []byte) error {
	saved := blank(obj)
	content, err := decodeSaved(text, saved)
	if err != nil {
		return err
	}
	status := statusOf(saved)
	statusOf(obj).Set(status)
	fresh := obj.Head().Metadata.Generation == 0
	AssignGeneration(obj, saved)
	m.content, m.status, m.generation = content, cloned(status), saved.Head().Metadata.Generation
	if fresh && obj.Head().Metadata.Generation == m.generation {
		m.spec = specSum(obj)
	}
	return nil
}

// decodeSaved decodes a saved document, leniently: another version of this
// program, or a person, may have written it. It returns the sum of its content
// as compact JSON, the zero sum for what this program would not have written.
func decodeSaved(text []byte, saved Object) (sum, error) {
	if n, err := document.ReadYAML(text); err == nil {
		content := n.AppendJSON(nil)
		if json.Unmarshal(content, saved) == nil {
			return sha256.Sum256(content), nil
		}
	}
	reflect.ValueOf(saved).Elem().SetZero()
	return sum{}, yaml.Unmarshal(text, saved)
}

// A sum tells values apart.
type sum = [sha256.Size]byte

// sumOf returns the sum of all that the document of obj says.
func sumOf(obj Object) (sum, error) {
	text, err := json.Marshal(obj)
	if err != nil {
		return sum{}, err
	}
	return sha256.Sum256(append(text, obj.Head().spelled...)), nil
}

// specSum returns the sum of the spec of obj, the zero sum when it has none.
func specSum(obj Object) sum {
	spec := reflect.ValueOf(obj).Elem().FieldByName("Spec")
	if !spec.IsValid() {
		return sum{}
	}
	text, err := json.Marshal(spec.Interface())
	if err != nil {
		return sum{}
	}
	return sha256.Sum256(append(text, obj.Head().APIVersion...))
}
