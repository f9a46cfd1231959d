package rollout

import (
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strconv"
)

// A Payload is what a webhook receives: its fields in this order
// (specification, "Webhook call payload").
type Payload struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Phase     Phase             `json:"phase"`
	Checksum  string            `json:"checksum"`
	Metadata  map[string]string `json:"metadata,omitempty"`
}

// MetadataTrial is the key of metadata by which a payload says, with the value
// "true", that a person tries out what a rollout would send: nothing waits for the
// answer.
const MetadataTrial = "headgate.trial"

// checksumDigits are the letters and digits that spell no words.
const checksumDigits = "bcdfghjklmnpqrstvwxz2456789"

// Checksum identifies a revision and the configuration it runs with, in at
// most ten characters, as the reference does: spec is the revision as the
// status of a canary has it, configs the names and digests of what it is
// configured by, nil when that is not tracked. Receivers treat it as opaque.
//
// It is the 32-bit FNV-1a sum of a text with both; each decimal digit of the
// sum is replaced. It protects from nothing: different revisions can have the
// same.
func Checksum(spec string, configs *map[string]string) string {
	sum := fnv.New32a() // whose Write returns no error
	io.WriteString(sum, "(struct { TrackedConfigs *map[string]string; LastAppliedSpec string }){TrackedConfigs:(*map[string]string)")
	if configs == nil || *configs == nil {
		io.WriteString(sum, "<nil>")
	} else {
		io.WriteString(sum, "map[")
		for i, key := range slices.Sorted(maps.Keys(*configs)) {
			if i > 0 {
				io.WriteString(sum, " ")
			}
			io.WriteString(sum, key+":"+(*configs)[key])
		}
		io.WriteString(sum, "]")
	}
	fmt.Fprintf(sum, " LastAppliedSpec:(string)%s}", spec)
	text := strconv.AppendUint(nil, uint64(sum.Sum32()), 10)
	for i, digit := range text {
		text[i] = checksumDigits[int(digit)%len(checksumDigits)]
	}
	return string(text)
}
