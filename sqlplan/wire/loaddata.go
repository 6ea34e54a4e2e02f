package wire

import sqle "github.com/dolthub/go-mysql-server"

func installLoadData(e *sqle.Engine, m *Metrics) {}
