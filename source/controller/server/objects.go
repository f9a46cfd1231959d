package server

import (
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller"
)

// A gauge of objects is a metric with a series for each of them. With many
// objects these are nearly all there is: they are written as they are looked
// up, which takes a tenth of what a registry takes for them.
type objectGauge struct {
	name, help string
	value      func(v controller.View, now, began time.Time) (value float64, has bool)
}

var objectGauges = []objectGauge{
	{"source_ready", "Whether a source is ready: 1, 0, or -1 when that is not known.", func(v controller.View, _, _ time.Time) (float64, bool) {
		return readyNumbers[readyOf(v).Status], true
	}},
	{"source_staleness_ratio", "Time since the origin of a source last answered, over its interval; since the server began when it has not yet. Above 2 it is overdue.", func(v controller.View, now, began time.Time) (float64, bool) {
		since := v.Checked
		if since.Before(began) {
			since = began
		}
		return float64(now.Sub(since)) / float64(v.Object.Interval()), checked(v)
	}},
	{"source_checked_timestamp_seconds", "Unix time at which the origin of a source last answered, 0 when it has not since the server began.", func(v controller.View, _, _ time.Time) (float64, bool) {
		return unix(v.Checked), checked(v)
	}},
}

// readyNumbers is readiness as a number.
var readyNumbers = map[string]float64{"True": 1, "False": 0, "Unknown": -1}

// checked reports whether the origin of an object is asked again and again.
func checked(v controller.View) bool {
	return v.Object.Interval() > 0 && v.Phase != controller.Suspended
}

var labelEscape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// writeObjects writes the gauges of all objects in the text format of Prometheus.
func (s *Server) writeObjects(w io.Writer) error {
	const piece = 64 << 10
	views, now := s.Controller.Views(), time.Now()
	labels := make([]string, len(views))
	for i, v := range views {
		ref := source.ReferenceTo(v.Object)
		labels[i] = `{kind="` + ref.Kind + `",namespace="` + labelEscape.Replace(ref.Namespace) + `",name="` + labelEscape.Replace(ref.Name) + `"} `
	}
	text := make([]byte, 0, piece+(1<<10))
	for _, g := range objectGauges {
		text = append(text, "# HELP "+metricPrefix+g.name+" "+g.help+"\n# TYPE "+metricPrefix+g.name+" gauge\n"...)
		for i, v := range views {
			value, has := g.value(v, now, s.started)
			if !has || v.Phase == controller.Removed {
				continue
			}
			text = append(append(append(text, metricPrefix...), g.name...), labels[i]...)
			text = append(strconv.AppendFloat(text, value, 'g', -1, 64), '\n')
			if len(text) >= piece {
				if _, err := w.Write(text); err != nil {
					return err
				}
				text = text[:0]
			}
		}
	}
	_, err := w.Write(text)
	return err
}
