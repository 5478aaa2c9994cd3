"""The paper's comparison on the real engine, in real time, with the simulator's prediction of the same runs.

Every run is a file in a folder, so that an interrupted call goes on where the last one stopped.
Systems take turns on one warm engine, so that a drifting machine hurts all of them alike.
"""
