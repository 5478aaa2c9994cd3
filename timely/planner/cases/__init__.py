"""Cases: tasks with plans and worlds in which plans are judged."""
