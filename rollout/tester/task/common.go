package task

import (
	"fmt"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// MaxOutput is the largest outputLimit that metadata may ask for, in bytes.
const MaxOutput = 16 << 20

// Common is what metadata of every type may say about a run.
type Common struct {
	ReturnOutput bool          // returnCmdOutput: the answer holds the output
	LogOutput    bool          // logCmdOutput: so does the log
	Wait         bool          // wait: a type that runs in the background is waited for
	FailOnError  bool          // failOnError: a failure nobody waited for is the next answer
	Timeout      time.Duration // timeout: seconds or a duration; 0 when it is not there
	OutputLimit  int           // outputLimit: bytes that are kept, up to MaxOutput; 0 when it is not there
}

// ParseCommon reads the keys that every type has. Errors name the key.
func ParseCommon(metadata map[string]string) (Common, error) {
	var c Common
	for _, s := range []struct {
		key string
		to  *bool
	}{
		{"returnCmdOutput", &c.ReturnOutput},
		{"logCmdOutput", &c.LogOutput},
		{"wait", &c.Wait},
		{"failOnError", &c.FailOnError},
	} {
		value, err := boolean(metadata, s.key, false)
		if err != nil {
			return Common{}, err
		}
		*s.to = value
	}
	if text := metadata["timeout"]; text != "" {
		d, err := api.ParseInterval(text, 0)
		if err != nil {
			return Common{}, fmt.Errorf("metadata timeout: %w", err)
		}
		c.Timeout = d
	}
	if text := metadata["outputLimit"]; text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > MaxOutput {
			return Common{}, fmt.Errorf("metadata outputLimit: %q is no number of bytes from 1 to %d", text, MaxOutput)
		}
		c.OutputLimit = n
	}
	return c, nil
}

// boolean reads a switch of metadata, in the spellings that Go's strconv knows;
// fallback when it is not there or empty.
func boolean(metadata map[string]string, key string, fallback bool) (bool, error) {
	text := metadata[key]
	if text == "" {
		return fallback, nil
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("metadata %s: %q is neither true nor false", key, text)
	}
	return value, nil
}
