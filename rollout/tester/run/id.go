package run

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"
)

// An ID is 24 letters and digits: microseconds since 1970 (12), so that later
// runs have later IDs, and 60 random bits (12), so that nobody guesses one.
var digits = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

const idLength = 24

// A clock makes IDs that ascend, also when the time does not.
type clock struct{ last int64 }

func (c *clock) id(now time.Time) string {
	c.last = max(now.UnixMicro(), c.last+1)
	var b [15]byte
	rand.Read(b[:])
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(c.last)<<4) // 60 bits
	copy(b[:8], at[:7])
	b[7] = at[7] | b[7]&0x0f
	return digits.EncodeToString(b[:])
}

// validID reports whether a text has the form of an ID.
func validID(id string) bool {
	return len(id) == idLength && strings.Trim(id, "0123456789abcdefghijklmnopqrstuv") == ""
}

// lastTime is the last microsecond of the year 9999: IDs beyond leave a clock
// none that are later.
const lastTime = 253402300799_999999

// idTime returns when an ID was made.
func idTime(id string) (micro int64) {
	b, err := digits.DecodeString(id)
	if err != nil || len(b) != 15 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b[:8]) >> 4)
}
