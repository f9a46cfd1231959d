package document

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Bounds of YAML that other packages decode.
const (
	nodeBytes = 32 // that a node counts beside its text
	maxLevels = 100
	maxTags   = 1000 // occurrences of %TAG, each of which is compared with all before
)

// CheckYAML refuses a YAML document that must not be given to a decoder which writes out
// aliases and takes keys for texts: it is more than 100 levels deep, its aliases stand for
// more than some bytes, or keys that differ in their types only have the same text. (1 MiB
// with aliases can become gigabytes.)
func CheckYAML(text []byte, aliasBytes int) error {
	if bytes.Count(text, []byte("%TAG")) > maxTags {
		return fmt.Errorf("it has more than %d directives %%TAG", maxTags)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return err
	}
	check := yamlCheck{aliasBytes, aliasBytes}
	return check.node(&doc, 0, false)
}

type yamlCheck struct{ most, left int }

// node checks a node, which an alias stands for or not.
func (c *yamlCheck) node(n *yaml.Node, level int, aliased bool) error {
	if level > maxLevels {
		return fmt.Errorf("it is more than %d levels deep, aliases written out", maxLevels)
	}
	if n.Kind == yaml.AliasNode {
		return c.node(n.Alias, level, true)
	}
	if aliased {
		if c.left -= nodeBytes + len(n.Value) + len(n.Tag); c.left < 0 {
			return fmt.Errorf("its aliases stand for more than %d bytes", c.most)
		}
	}
	keys := map[string]string{} // tag of each key
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			if tag, twice := keys[child.Value]; twice && tag != child.Tag && child.Kind == yaml.ScalarNode {
				return fmt.Errorf("two keys are %.120q", child.Value)
			}
			keys[child.Value] = child.Tag
		}
		if err := c.node(child, level+1, aliased); err != nil {
			return err
		}
	}
	return nil
}
